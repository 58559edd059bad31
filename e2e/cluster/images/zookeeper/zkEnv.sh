#!/usr/bin/env bash
# Sourced by zkServer.sh and zkCli.sh: finds the configuration, the jars and the JVM's flags, with
# the variables and defaults that ZooKeeper's own distribution documents.
ZOOKEEPER_PREFIX=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ZOOCFGDIR=${ZOOCFGDIR:-$ZOOKEEPER_PREFIX/conf}

if [ -f "$ZOOCFGDIR/zookeeper-env.sh" ]; then
  . "$ZOOCFGDIR/zookeeper-env.sh"
fi
ZOOCFG=$ZOOCFGDIR/${ZOOCFG:-zoo.cfg}
if [ -f "$ZOOCFGDIR/java.env" ]; then
  . "$ZOOCFGDIR/java.env"
fi
ZOO_LOG_DIR=${ZOO_LOG_DIR:-$ZOOKEEPER_PREFIX/logs}

if [ -n "${JAVA_HOME:-}" ]; then
  JAVA=$JAVA_HOME/bin/java
else
  JAVA=java
fi

CLASSPATH=$ZOOCFGDIR${CLASSPATH:+:$CLASSPATH}
for jar in "$ZOOKEEPER_PREFIX"/lib/*.jar; do
  CLASSPATH=$CLASSPATH:$jar
done
export CLASSPATH

# Heaps are in megabytes; a -Xmx in SERVER_JVMFLAGS or CLIENT_JVMFLAGS comes later and wins, as does another
# configuration of the log. A volume mounted over /conf may hold none: a server without one would log each packet.
LOG=-Dlogback.configurationFile=$ZOOKEEPER_PREFIX/conf/logback.xml
SERVER_JVMFLAGS="-Xmx${ZK_SERVER_HEAP:-1000}m $LOG ${SERVER_JVMFLAGS:-}"
CLIENT_JVMFLAGS="-Xmx${ZK_CLIENT_HEAP:-256}m $LOG ${CLIENT_JVMFLAGS:-}"
export SERVER_JVMFLAGS CLIENT_JVMFLAGS
