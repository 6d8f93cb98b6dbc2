# An image of the broker: docker build -t fleximq . (docs/guides/installing.rst)

ARG PYTHON=3.11

FROM python:${PYTHON} AS build
COPY . /src
RUN python -m venv /opt/fleximq
RUN /opt/fleximq/bin/pip install --no-cache-dir /src
# Twisted stores the list of plug-ins while it may write there.
RUN /opt/fleximq/bin/twistd --help > /dev/null

FROM python:${PYTHON}-slim
RUN useradd --system --uid 890 --user-group --no-create-home --home-dir /var/lib/fleximq --shell /usr/sbin/nologin fleximq
RUN install --directory --owner=fleximq --group=fleximq --mode=0700 /var/lib/fleximq
COPY --from=build /opt/fleximq /opt/fleximq
ENV PATH=/opt/fleximq/bin:$PATH
USER fleximq
WORKDIR /var/lib/fleximq
VOLUME /var/lib/fleximq
EXPOSE 7890
HEALTHCHECK --start-period=5m --start-interval=1s --interval=10s --timeout=5s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:7890/healthz', timeout=4)"]
# The options of the broker follow the name of the image. SIGTERM drains the connections, then stops.
ENTRYPOINT ["twistd", "--nodaemon", "--pidfile=", "fleximq", "--journal", "/var/lib/fleximq"]
