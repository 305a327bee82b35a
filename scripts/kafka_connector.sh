#!/usr/bin/env bash
# Puts Spark's own Kafka connector into .tools/kafka-connector, from Maven Central, as the peer of
# bench/kafka.py. Where that cannot be done it says so and goes on: that benchmark has no peer then.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.2.0
jars=.tools/kafka-connector/$version
[ ! -e "$jars/complete" ] || exit 0
command -v mvn >/dev/null || scripts/tools.sh maven
hash -r
if ! command -v mvn >/dev/null; then
    echo "kafka: no mvn, so no connector of Spark to compare with" >&2
    exit 0
fi
echo "kafka: fetching Spark's connector"
mkdir -p "$jars"
# One by one: the connector's own POM names a repository that may be out of reach.
for artifact in \
    org.apache.spark:spark-sql-kafka-0-10_2.13:$version \
    org.apache.spark:spark-token-provider-kafka-0-10_2.13:$version \
    org.apache.kafka:kafka-clients:3.9.1 \
    org.apache.commons:commons-pool2:2.12.1; do
    if ! timeout 300 mvn -q -B dependency:copy -Dartifact="$artifact" -DoutputDirectory="$PWD/$jars" >/dev/null
    then
        echo "kafka: mvn could not fetch $artifact: no connector of Spark to compare with" >&2
        exit 0
    fi
done
touch "$jars/complete"
