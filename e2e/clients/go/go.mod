module dev.bellwether/e2e/clients

go 1.24

require github.com/go-zookeeper/zk v1.0.4
