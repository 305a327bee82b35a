#!/usr/bin/env bash
# Puts the libraries of a Kafka broker into .tools/kafka, from Maven Central, for the tests of Kafka.
# Where that cannot be done it says so and goes on: those tests then say loudly what was not tried.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.1.0
libs=.tools/kafka/$version
[ ! -e "$libs/complete" ] || exit 0
if ! command -v mvn >/dev/null; then
    scripts/tools.sh maven
    hash -r
fi
if ! command -v mvn >/dev/null; then
    echo "kafka: no mvn, so no broker; the tests that need one are skipped" >&2
    exit 0
fi
echo "kafka: fetching the broker's libraries (43 MB)"
mkdir -p "$libs"
cat >"$libs/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version>
  </dependency></dependencies>
</project>
POM
if timeout 600 mvn -q -B -f "$libs/pom.xml" dependency:copy-dependencies -DoutputDirectory="$PWD/$libs" \
    -DincludeScope=runtime >/dev/null; then
    touch "$libs/complete"
else
    echo "kafka: mvn failed; the tests that need a broker are skipped" >&2
fi
