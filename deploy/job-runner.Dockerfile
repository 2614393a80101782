# The runner that clusters start, built from the project's root after `make job-runner`:
#   docker build -f deploy/job-runner.Dockerfile -t job-runner .
#   docker build -f deploy/job-runner.Dockerfile --target bare -t job-runner .
#
# `bare` is the static program alone, for runtimes whose runs all name an image of their own:
# the runner is copied into those.
FROM scratch AS bare
COPY bin/job-runner /usr/local/bin/job-runner
ENTRYPOINT ["/usr/local/bin/job-runner"]

# With a shell, git and certificates, which most harnesses want.
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git && rm -rf /var/lib/apt/lists/*
COPY bin/job-runner /usr/local/bin/job-runner
ENTRYPOINT ["/usr/local/bin/job-runner"]
