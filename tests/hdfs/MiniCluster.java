import java.io.File;
import java.net.ServerSocket;
import java.util.Arrays;
import java.util.List;
import java.util.Scanner;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.hdfs.protocol.HdfsConstants;
import org.apache.hadoop.hdfs.server.namenode.NameNodeAdapter;
import org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider;
import org.apache.hadoop.minikdc.MiniKdc;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * HDFS in this process, on loopback. Arguments: its folder, and any of "ha", "kerberos=USER" and
 * settings as key=value ("mini.datanodes": how many, one by default). Prints the addresses of its
 * NameNodes, and takes commands by standard input.
 *
 * <p>With "ha" there are two NameNodes, of which the first is active. With "kerberos" the folder has
 * krb5.conf and user.keytab.
 */
public class MiniCluster {
    private static Configuration conf = new Configuration();
    private static MiniDFSCluster cluster;
    private static DataNodeProperties stopped;

    public static void main(String[] args) throws Exception {
        List<String> options = Arrays.asList(args).subList(1, args.length);
        conf.set("hdfs.minidfs.basedir", args[0]);
        conf.set("dfs.heartbeat.interval", "1");
        conf.set("dfs.namenode.heartbeat.recheck-interval", "1000");
        conf.set("dfs.namenode.delegation.token.always-use", "true");
        MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(conf);
        boolean isHa = options.contains("ha");
        for (String option : options) {
            if (option.startsWith("kerberos=")) {
                wantKerberos(new File(args[0]), option.split("=")[1]);
                builder.checkDataNodeAddrConfig(true);
            } else if (option.contains("=")) {
                conf.set(option.split("=", 2)[0], option.split("=", 2)[1]);
            }
        }
        builder.numDataNodes(conf.getInt("mini.datanodes", 1));
        if (isHa) {
            builder.nnTopology(MiniDFSNNTopology.simpleHATopology());
            conf.set( // DataNodes are clients of the pair, too
                    "dfs.client.failover.proxy.provider.minidfs-ns",
                    ConfiguredFailoverProxyProvider.class.getName());
        }
        cluster = builder.build();
        if (isHa) {
            cluster.transitionToActive(0);
        }
        cluster.waitActive(0);
        StringBuilder addresses = new StringBuilder();
        for (int i = 0; i < cluster.getNumNameNodes(); i++) {
            addresses.append(cluster.getNameNodePort(i)).append(' ');
        }
        say(addresses.toString());
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            execute(lines.nextLine().split(" "));
            say("done");
        }
        cluster.shutdown();
    }

    private static void execute(String[] line) throws Exception {
        switch (line[0]) {
            case "stop-namenode" -> cluster.shutdownNameNode(number(line));
            case "start-namenode" -> cluster.restartNameNode(number(line), false);
            case "make-active" -> {
                cluster.transitionToActive(number(line));
                cluster.waitActive(number(line));
            }
            case "make-standby" -> cluster.transitionToStandby(number(line));
            case "stop-datanode" -> stopped = cluster.stopDataNode(0);
            case "start-datanode" -> {
                cluster.restartDataNode(stopped, true);
                cluster.waitActive();
            }
            case "enter-safe-mode" -> NameNodeAdapter.enterSafeMode(cluster.getNameNode(), false);
            case "leave-safe-mode" -> NameNodeAdapter.leaveSafeMode(cluster.getNameNode());
            case "limit-names" ->
                    cluster.getFileSystem().setQuota(
                            new Path(line[1]), 1, HdfsConstants.QUOTA_DONT_SET);
            case "limit-space" ->
                    cluster.getFileSystem().setQuota(
                            new Path(line[1]), HdfsConstants.QUOTA_DONT_SET, 1);
            case "write-token" -> {
                Credentials tokens = new Credentials();
                cluster.getFileSystem().addDelegationTokens("hdfs", tokens);
                tokens.writeTokenStorageFile(new Path("file://" + line[1]), conf);
            }
            default -> throw new IllegalArgumentException(line[0]);
        }
    }

    private static int number(String[] line) {
        return Integer.parseInt(line[1]);
    }

    private static void wantKerberos(File folder, String user) throws Exception {
        folder.mkdirs();
        MiniKdc kdc = new MiniKdc(MiniKdc.createConf(), folder);
        kdc.start();
        File keys = new File(folder, "servers.keytab");
        kdc.createPrincipal(keys, "hdfs/localhost", "HTTP/localhost");
        kdc.createPrincipal(new File(folder, "user.keytab"), user);
        conf.set("hadoop.security.authentication", "kerberos");
        for (String server : new String[] {"dfs.namenode", "dfs.datanode"}) {
            conf.set(server + ".kerberos.principal", "hdfs/localhost@" + kdc.getRealm());
            conf.set(server + ".keytab.file", keys.getPath());
        }
        conf.set("dfs.web.authentication.kerberos.principal", "HTTP/localhost@" + kdc.getRealm());
        conf.set("dfs.web.authentication.kerberos.keytab", keys.getPath());
        conf.set("dfs.namenode.http-address", "localhost:0");
        for (String each : new String[] {"address", "http.address", "ipc.address"}) {
            try (ServerSocket socket = new ServerSocket(0)) { // with Kerberos it has to be a number
                conf.set("dfs.datanode." + each, "localhost:" + socket.getLocalPort());
            }
        }
        conf.setBoolean("dfs.block.access.token.enable", true);
        conf.setBoolean("ignore.secure.ports.for.testing", true);
        UserGroupInformation.setConfiguration(conf);
        UserGroupInformation.loginUserFromKeytab("hdfs/localhost@" + kdc.getRealm(), keys.getPath());
    }

    private static void say(String text) {
        System.out.println();
        System.out.println("mini: " + text);
    }
}
