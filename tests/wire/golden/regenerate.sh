#!/bin/sh
# Writes protocol-VERSION.txt anew from RocketMQ's own jars, which `rocketstream.testing` keeps in its cache.
set -eu
cd "$(dirname "$0")"
for version in 5.5.0 4.9.7; do
    jars="${XDG_CACHE_HOME:-$HOME/.cache}/rocketstream/rocketmq/$version"
    java -Dfile.encoding=UTF-8 -Dstdout.encoding=UTF-8 -cp "$jars/*" DumpProtocol.java dump \
        "$jars/rocketmq-common-$version.jar" "$jars/rocketmq-remoting-$version.jar" \
        | grep -E '^(CODE|FIELD|BODY) ' > "protocol-$version.txt"
done
