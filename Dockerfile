# docker build -t shrink .                               CPU
# docker build -t shrink-gpu --build-arg EXTRAS=[gpu] .  CUDA, run with --gpus all
# docker run --rm -v "$PWD:/work" -v shrink-store:/store shrink run recipes/model.yaml
FROM python:3.11-slim

ARG EXTRAS=""
ENV PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    SHRINK_CACHE_DIR=/store

# git names the commit of a recipe's folder in reports.
RUN apt-get update && apt-get install --yes --no-install-recommends git && rm -rf /var/lib/apt/lists/*
COPY . /src
RUN python -m pip install "/src${EXTRAS}" \
    && rm -rf /src \
    && useradd --create-home --uid 1000 shrink \
    && mkdir /store /work \
    && chown shrink /store /work

# By number, which a cluster can tell from root's without asking the image.
USER 1000
WORKDIR /work
VOLUME /store
ENTRYPOINT ["shrink"]
CMD ["--help"]
