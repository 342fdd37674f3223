"""From photos to a report, on rendered photos: about two minutes, offline."""

import driftline as dl

run = dl.demo("demo")  # photos, download, retrieval, simulated annotators, release
for stage in dl.status(run)["stages"]:
    print(stage["stage"], stage["state"], stage["counts"])
release = run.release()
print(f"{release.name}: {len(release.table)} images of {len(release.classes)} classes")
stream = dl.from_release(release, "photos-of-2004").save("stream")
learners = ["majority", "nearest-mean", "finetune", "er"]
results = dl.evaluate(stream, "clear-iid", learners, seeds=[0, 1], out="runs")
print(results.frame().groupby(["score", "learner"])["value"].mean().unstack().round(3))
print("report:", dl.report(results, "report"))
