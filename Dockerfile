# The operator's image: two static programs and nothing else. dist/ is filled by the project's own
# commands; both files are world-executable, since the member program also runs as ZooKeeper's user.
FROM scratch
LABEL org.opencontainers.image.title="Bellwether" \
      org.opencontainers.image.description="A Kubernetes operator for ZooKeeper ensembles and the elections held in them" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/bellwether-operator/bellwether"
COPY dist/bellwether /usr/local/bin/bellwether
COPY dist/bellwether-member /bellwether-member
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/bellwether"]
