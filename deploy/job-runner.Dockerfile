# The runner that clusters start: everdict's job-runner with a shell, git and
# certificates, which most harnesses want. From the project's root:
#   make job-runner && docker build -f deploy/job-runner.Dockerfile -t job-runner .
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git && rm -rf /var/lib/apt/lists/*
COPY bin/job-runner /usr/local/bin/job-runner
ENTRYPOINT ["/usr/local/bin/job-runner"]
