#!/usr/bin/env bash
# Puts Hadoop's clusters for tests (HDFS, Kerberos) into .tools/hdfs, from Maven Central.
# Where that cannot be done it says so and goes on: those tests then say loudly what was not tried.
set -euo pipefail
cd "$(dirname "$0")/.."

version=3.5.0  # of the hadoop-client-api jar in pyspark/jars, beside which it runs
libs=.tools/hdfs/$version
[ ! -e "$libs/complete" ] || exit 0
if ! command -v mvn >/dev/null; then
    scripts/tools.sh maven
    hash -r
fi
if ! command -v mvn >/dev/null; then
    echo "hdfs: no mvn, so no cluster; the tests that need one are skipped" >&2
    exit 0
fi
echo "hdfs: fetching Hadoop's cluster for tests (60 MB)"
mkdir -p "$libs"
cat >"$libs/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>hdfs</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-minicluster</artifactId>
      <version>$version</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-minikdc</artifactId>
      <version>$version</version>
      <exclusions>
        <exclusion><groupId>org.slf4j</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>ch.qos.reload4j</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>
  </dependencies>
</project>
POM
if timeout 600 mvn -q -B -f "$libs/pom.xml" dependency:copy-dependencies -DoutputDirectory="$PWD/$libs" \
    -DincludeScope=runtime >/dev/null; then
    touch "$libs/complete"
else
    echo "hdfs: mvn failed; the tests that need a cluster are skipped" >&2
fi
