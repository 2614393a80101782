# Two images of the program, built from the project's root after `make static`:
#   docker build -f deploy/everdict.Dockerfile -t everdict .                  # coordinator or runner
#   docker build -f deploy/everdict.Dockerfile --target bare -t everdict .    # the static program alone
#
# SQLite is C, so that the program needs cgo to be built; what it is linked to is in it. `bare`
# is enough for a coordinator that trusts no certificates but those in its kubeconfigs.
FROM scratch AS bare
COPY bin/everdict-static /usr/local/bin/everdict
USER 20250:20250
ENTRYPOINT ["/usr/local/bin/everdict"]

# With a shell, git and certificates, which most harnesses want.
FROM debian:12-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git && rm -rf /var/lib/apt/lists/* \
	&& install -d -o 20250 -g 20250 /var/lib/everdict
COPY bin/everdict-static /usr/local/bin/everdict
USER 20250:20250
ENTRYPOINT ["/usr/local/bin/everdict"]
