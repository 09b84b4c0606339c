# docker build -t shrink .                               CPU
# docker build -t shrink-gpu --build-arg EXTRAS=[gpu] .  CUDA, run with --gpus all
# docker run --rm -v "$PWD:/work" -v shrink-store:/store shrink run recipes/model.yaml
FROM python:3.11-slim

ARG EXTRAS=""
ENV PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    SHRINK_CACHE_DIR=/store

COPY . /src
RUN python -m pip install "/src${EXTRAS}" \
    && rm -rf /src \
    && useradd --create-home shrink \
    && mkdir /store /work \
    && chown shrink /store /work

USER shrink
WORKDIR /work
VOLUME /store
ENTRYPOINT ["shrink"]
CMD ["--help"]
