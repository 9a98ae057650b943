# One final stage a program: a static binary and nothing else, so nothing is fetched and there is nothing to patch.
# The binaries lie in dist/<architecture>; e2e/lib/images.sh puts them there.
#
#   docker build --target server --build-arg TARGETARCH=amd64 -t tunedweb/server .
#
# 65532 is the user that images without a shell customarily run as; it has no name here.

FROM scratch AS server
ARG TARGETARCH=amd64
COPY dist/${TARGETARCH}/tunedweb-server /tunedweb-server
USER 65532:65532
ENTRYPOINT ["/tunedweb-server"]

FROM scratch AS loadgen
ARG TARGETARCH=amd64
COPY dist/${TARGETARCH}/tunedweb-loadgen /tunedweb-loadgen
USER 65532:65532
ENTRYPOINT ["/tunedweb-loadgen"]

FROM scratch AS operator
ARG TARGETARCH=amd64
COPY dist/${TARGETARCH}/tunedweb-operator /tunedweb-operator
USER 65532:65532
ENTRYPOINT ["/tunedweb-operator"]

# Kernel keys belong to uid 0, so the two that write them cannot be anyone else; the pods that run them drop
# the capabilities that they do not need.
FROM scratch AS tuner
ARG TARGETARCH=amd64
COPY dist/${TARGETARCH}/tunedweb-tuner /tunedweb-tuner
USER 0:0
ENTRYPOINT ["/tunedweb-tuner"]

FROM scratch AS agent
ARG TARGETARCH=amd64
COPY dist/${TARGETARCH}/tunedweb-agent /tunedweb-agent
USER 0:0
ENTRYPOINT ["/tunedweb-agent"]
