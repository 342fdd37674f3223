"""A real Turkle (the self-hosted clone of MTurk) on loopback, with its own database, for the loop of a batch."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

SETTINGS = """
SECRET_KEY = "for a test"
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = [
    "turkle.apps.TurkleAppConfig", "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
    "django.contrib.sessions", "django.contrib.messages", "django.contrib.staticfiles", "django.contrib.humanize",
    "guardian", "rest_framework", "djaa_list_filter2",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware", "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True, "OPTIONS": {
    "context_processors": ["django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
                           "django.contrib.messages.context_processors.messages", "turkle.utils.turkle_vars"]}}]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "turkle.sqlite"}}
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend", "guardian.backends.ObjectPermissionBackend"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
REST_FRAMEWORK = {"DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.BasicAuthentication"],
                  "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAdminUser"]}
ROOT_URLCONF = "site_urls"
STATIC_URL = "/static/"
LOGIN_REDIRECT_URL = "/"
LOGIN_URL = "/login/"
USE_TZ = True
TURKLE_AUTO_ACCEPT_DEFAULT = False
"""
URLS = """
from django.contrib import admin
from django.urls import include, path
urlpatterns = [path("admin/", admin.site.urls), path("", include("django.contrib.auth.urls")),
               path("api/", include("turkle.api.urls")), path("", include("turkle.urls"))]
"""
MANAGE = "from django.core.management import execute_from_command_line as run; import sys; run(sys.argv)"
PASSWORD = "a-password-for-a-test"


@contextmanager
def turkle(folder: Path, workers: Sequence[str]) -> Iterator[str]:
    """Serve from `folder`; yields the address. The administrator is `admin`."""
    (folder / "site_settings.py").write_text(SETTINGS)
    (folder / "site_urls.py").write_text(URLS)
    (folder / "manage.py").write_text(MANAGE)
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "site_settings", "DJANGO_SUPERUSER_PASSWORD": PASSWORD, "PYTHONPATH": str(folder),
    }  # fmt: skip

    def manage(*arguments: str) -> None:
        subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=folder, env=environment, check=True, capture_output=True
        )

    manage("migrate", "-v", "0")
    manage("createsuperuser", "--noinput", "--username", "admin", "--email", "admin@example.org")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "manage.py", "runserver", "--noreload", "--nostatic", f"127.0.0.1:{port}"]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(3000):
            try:
                httpx.get(f"{address}/login/").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        with api(address) as admin:
            for worker in workers:
                body = {"username": worker, "password": PASSWORD}
                admin.post("/users/", json=body).raise_for_status()
        yield address
    finally:
        server.terminate()
        server.wait(100)


def api(address: str) -> httpx.Client:
    """Turkle's REST interface, as the administrator."""
    return httpx.Client(base_url=f"{address}/api", auth=("admin", PASSWORD), timeout=60)


class Worker:
    """Somebody who logs in with a browser's requests and answers tasks as their page asks for it."""

    def __init__(self, address: str, name: str) -> None:
        self.browser = httpx.Client(base_url=address, follow_redirects=True, timeout=60)
        page = self.browser.get("/login/").text
        self.browser.post(
            "/login/", data={"username": name, "password": PASSWORD, "csrfmiddlewaretoken": token_of(page)}
        ).raise_for_status()

    def next_task(self, batch: int) -> tuple[str, str] | None:
        """(address to answer at, page of the task in its frame); None when nothing is left."""
        shown = self.browser.get(f"/batch/{batch}/accept_next_task/")
        found = re.search(r"/task/(\d+)/assignment/(\d+)/$", shown.url.path)
        if found is None:
            return None
        frame = self.browser.get(f"/task/{found[1]}/assignment/iframe/{found[2]}/")
        return shown.url.path, frame.text

    def answer(self, place: str, page: str, labels: Sequence[str], sensitive: bool = False) -> None:
        """Send the form that the page holds."""
        told = {"labels": list(labels), "sensitive": "yes" if sensitive else "no"}
        self.browser.post(place, data={**told, "csrfmiddlewaretoken": token_of(page)}).raise_for_status()


def token_of(page: str) -> str:
    """Django's token against forged requests."""
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert found is not None
    return found[1]
