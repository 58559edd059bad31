#!/usr/bin/env bash
# Writes an archive of the classes that a member of an ensemble loads (JEP 350). With it, Java starts a server in about
# half the time. It is good for one build of Java and one set of jars, so run this in the image that gets it:
#
#   record.sh FILE
#
# Two servers run on loopback with what an ensemble has by default: TLS between them and for clients, and metrics. The
# follower's Java writes the archive when it ends.
set -euo pipefail
archive=$1
work=$(mktemp -d)
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT

key() {
  keytool "$@" -alias member -keystore "$work/member.p12" -storepass recording 2>>"$work/keytool.log" ||
    { cat "$work/keytool.log" >&2; exit 1; }
}
key -genkeypair -keyalg EC -groupname secp256r1 -dname CN=member -storetype PKCS12
key -exportcert -rfc -file "$work/authorities.pem"

# A directory on the class path makes Java refuse the archive, so the configuration must not be on it. A member is
# started in the same way.
export ZOOCFGDIR=/not-on-the-class-path JMXDISABLE=true ZOO_LOG_DIR=$work
cat >"$work/logback.xml" <<LOGBACK
<configuration>
  <appender name="CONSOLE" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} [myid:%X{myid}] - %-5p [%t:%C{1}@%L] - %m%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="CONSOLE" /></root>
</configuration>
LOGBACK
start() { # ID FLAG...
  local id=$1 kind
  shift
  mkdir -p "$work/$id"
  echo "$id" >"$work/$id/myid"
  cat >"$work/$id/zoo.cfg" <<CFG
dataDir=$work/$id
tickTime=1000
initLimit=10
syncLimit=5
fastleader.maxNotificationInterval=500
leader.maxTimeToWaitForEpoch=2000
standaloneEnabled=false
admin.serverAddress=127.0.0.1
admin.serverPort=1807$id
4lw.commands.whitelist=conf,isro,mntr,ruok,srvr
metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider
metricsProvider.httpPort=1700$id
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
clientPort=1218$id
secureClientPort=1228$id
sslQuorum=true
sslQuorumReloadCertFiles=true
ssl.quorum.hostnameVerification=false
ssl.clientAuth=none
$(for kind in ssl ssl.quorum; do
    echo "$kind.keyStore.location=$work/member.p12"
    echo "$kind.keyStore.password=recording"
    echo "$kind.trustStore.location=$work/authorities.pem"
  done)
server.1=127.0.0.1:12888:13888:participant
server.2=127.0.0.1:12889:13889:participant
CFG
  SERVER_JVMFLAGS="-Xmx96m -Dlogback.configurationFile=$work/logback.xml $*" JVMFLAGS='' \
    zkServer.sh start-foreground "$work/$id/zoo.cfg" >"$work/$id/log" 2>&1 &
  servers+=($!)
}
ask() { # PORT WORD
  { exec 3<>"/dev/tcp/127.0.0.1/$1" && echo "$2" >&3 && cat <&3; } 2>/dev/null
}
start 1 "-XX:ArchiveClassesAtExit=$archive"
start 2
for _ in $(seq 300); do
  if ask 12181 mntr | grep -q follower; then
    kill "${servers[0]}"
    wait "${servers[0]}" || true
    test -s "$archive"
    exit
  fi
  sleep 0.2
done
echo "the servers did not come up:" >&2
cat "$work"/*/log >&2
exit 1
