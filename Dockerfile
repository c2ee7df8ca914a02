# One image for every role: the entrypoint is the command, the arguments say which role.
# Your agents: a Dockerfile of your own with `FROM turnyard` and `COPY app.py /app/`.

FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements.lock requirements-server.lock pyproject.toml hatch_build.py README.md LICENSE ./
RUN python -m venv /tools && /tools/bin/pip install --no-cache-dir --quiet --require-hashes -r requirements.lock
COPY turnyard turnyard
COPY dispatcher dispatcher
COPY workers workers
COPY platforms platforms
RUN /tools/bin/python -m build --wheel --no-isolation --outdir /dist
# Nothing is resolved here: versions and hashes come from the lock, the wheel brings no dependency of its own.
RUN python -m venv /opt/turnyard \
 && /opt/turnyard/bin/pip install --no-cache-dir --quiet --require-hashes -r requirements-server.lock \
 && /opt/turnyard/bin/pip install --no-cache-dir --quiet --no-deps /dist/*.whl

FROM python:3.12-slim
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin turnyard && mkdir /app && chown turnyard /app
COPY --from=build /opt/turnyard /opt/turnyard
# PYTHONPATH: the folder of the app, so that `app:app` is found from any working directory.
ENV PATH=/opt/turnyard/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER 10001
# The exec form: the command is process 1 and gets SIGTERM itself.
ENTRYPOINT ["turnyard"]
CMD ["--help"]
