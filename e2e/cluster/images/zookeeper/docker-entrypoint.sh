#!/usr/bin/env bash
# Starts a server that nobody has configured: writes a standalone zoo.cfg and a myid, as the official
# image does, when they are missing. A mounted /conf or /data that has them is left alone. Like there,
# the container may start as root and the server does not run as root.
set -e
if [ "$1" = zkServer.sh ] && [ "$(id -u)" = 0 ]; then
  chown -R zookeeper "$ZOO_DATA_DIR" "$ZOO_DATA_LOG_DIR" "$ZOO_LOG_DIR" "$ZOOCFGDIR"
  exec setpriv --reuid=zookeeper --regid=zookeeper --init-groups -- "$0" "$@"
fi
if [ "$1" = zkServer.sh ] && [ ! -f "$ZOOCFGDIR/zoo.cfg" ] && [ -w "$ZOOCFGDIR" ]; then
  {
    echo "dataDir=$ZOO_DATA_DIR"
    echo "dataLogDir=$ZOO_DATA_LOG_DIR"
    echo "tickTime=${ZOO_TICK_TIME:-2000}"
    echo "initLimit=${ZOO_INIT_LIMIT:-5}"
    echo "syncLimit=${ZOO_SYNC_LIMIT:-2}"
    echo "standaloneEnabled=${ZOO_STANDALONE_ENABLED:-true}"
    echo "admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}"
    echo "4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}"
    for server in ${ZOO_SERVERS:-server.1=localhost:2888:3888;2181}; do
      echo "$server"
    done
  } >"$ZOOCFGDIR/zoo.cfg"
fi
if [ "$1" = zkServer.sh ] && [ ! -f "$ZOO_DATA_DIR/myid" ] && [ -w "$ZOO_DATA_DIR" ]; then
  echo "${ZOO_MY_ID:-1}" >"$ZOO_DATA_DIR/myid"
fi
exec "$@"
