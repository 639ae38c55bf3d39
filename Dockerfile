# A node of Quipu.  The wheel is built apart, so that no compiler is in the image that runs.
FROM python:3.11-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc=4:* libc6-dev=2.* \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE requirements.lock ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && python -m venv /opt/quipu \
    && /opt/quipu/bin/pip install --no-cache-dir --constraint requirements.lock /wheels/*.whl

FROM python:3.11-slim
RUN groupadd --gid 10001 quipu \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin quipu \
    && install -d -o quipu -g quipu /var/lib/quipu
COPY --from=build /opt/quipu /opt/quipu
ENV PATH=/opt/quipu/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
VOLUME /var/lib/quipu
EXPOSE 9092 9094 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9464/health/live', timeout=2)"]
ENTRYPOINT ["quipu"]
CMD ["start", "--dir", "/var/lib/quipu", "--listen", "0.0.0.0:9092", "--set", "advertised.listeners=localhost:9092", "--set", "metrics.listener=0.0.0.0:9464"]
