# longtail serve in a container: docker build -t longtail . && docker run -p 8000:8000 -v ./models:/models:ro longtail /models/tags
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/longtail && /opt/longtail/bin/pip install --no-cache-dir '.[serve]'

FROM python:3.12-slim
COPY --from=build /opt/longtail /opt/longtail
# Compiled kernels are kept here; a volume saves their compilation at the next start.
ENV PATH=/opt/longtail/bin:$PATH PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/var/cache/longtail
RUN useradd --system --no-create-home --uid 10001 longtail && install -d -o longtail /var/cache/longtail
USER longtail
VOLUME /var/cache/longtail
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
ENTRYPOINT ["python", "-m", "longtail.serve", "--host", "0.0.0.0", "--port", "8000"]
