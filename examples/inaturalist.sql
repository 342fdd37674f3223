-- iNaturalist's open data, unpacked beside this file → a table for `source: parquet`; here birds (taxon 3)
CREATE MACRO read(name) AS TABLE FROM read_csv(name || '.csv.gz', delim='\t', quote='', all_varchar=true);
COPY (
  SELECT p.photo_id AS id, o.observed_on AS day, t.name AS species, p.observer_id AS observer, p.license AS licence,
         'https://inaturalist-open-data.s3.amazonaws.com/photos/' || p.photo_id || '/large.' || p.extension AS url
  FROM read('photos') p JOIN read('observations') o USING (observation_uuid) JOIN read('taxa') t USING (taxon_id)
  WHERE o.quality_grade = 'research' AND t.rank = 'species' AND p.position = '0'
    AND list_contains(string_split(t.ancestry, '/'), '3')
) TO 'inaturalist.parquet';
