//! The keys that may be asked for. Ranges are ours: the kernel accepts far more than is sensible.

use super::key::{EffectTime, Key, MergeRule, ReleaseRule, Scope, Shape, Unit, ValueRule};

/// What most keys have in common; each entry of the table states what differs.
const COMMON: Key = Key {
    name: "",
    shape: number(0, 1),
    unit: Unit::Count,
    scope: Scope::PodNetwork,
    safe_since: None,
    merge: MergeRule::Max,
    release: ReleaseRule::Restore,
    effect: EffectTime::Live,
    range_reason: "",
    refused_values: &[],
    advice: "",
    source: IP_SYSCTL,
};

const IP_SYSCTL: &str = "kernel documentation, networking/ip-sysctl";
const NET_SYSCTL: &str = "kernel documentation, admin-guide/sysctl/net";
const VM_SYSCTL: &str = "kernel documentation, admin-guide/sysctl/vm";
const FS_SYSCTL: &str = "kernel documentation, admin-guide/sysctl/fs";

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const TIB: u64 = 1024 * 1024 * MIB;

const fn number(min: u64, max: u64) -> Shape {
    Shape::Numbers { arity: 1, min, max }
}

const fn vector(arity: usize, min: u64, max: u64) -> Shape {
    Shape::Numbers { arity, min, max }
}

const SOCKET_BUFFERS: &str = "one page is the smallest buffer that holds a segment with its \
    bookkeeping; 512 MiB is the largest that is known from production";
const DATAGRAM_DEFAULT: &str = "212992 is the kernel's default, below it there is nothing to gain; \
    every UDP socket of the node may fill this much, so 16 MiB is the most";
const BUFFER_CEILING: &str = "212992 is the kernel's default, below it there is nothing to gain; \
    512 MiB is the largest that is known from production";

pub(super) const KEYS: &[Key] = &[
    Key {
        name: "net.core.somaxconn",
        shape: number(128, 65_535),
        effect: EffectTime::NextListen,
        range_reason: "each waiting connection takes about 300 bytes and more once it is \
            established, so a queue of millions takes a gigabyte a listener and turns overload \
            into latency; kernels before 5.0 cut the value to 16 bits",
        advice: "4096 to 65535, and the same backlog in the server's settings",
        source: NET_SYSCTL,
        ..COMMON
    },
    Key {
        name: "net.core.netdev_max_backlog",
        shape: number(1_000, 65_536),
        scope: Scope::HostNetwork,
        range_reason: "1000 is the kernel's default; packets wait in this queue on each CPU, and \
            65536 full-sized ones are 100 MB of delay",
        advice: "1000 to 5000; raise it only where column 2 of softnet_stat grows",
        source: NET_SYSCTL,
        ..COMMON
    },
    Key {
        name: "net.core.rmem_default",
        shape: number(212_992, 16 * MIB),
        unit: Unit::Bytes,
        scope: Scope::HostNetwork,
        effect: EffectTime::NewSocket,
        range_reason: DATAGRAM_DEFAULT,
        advice: "leave it: TCP takes its buffer from net.ipv4.tcp_rmem",
        source: NET_SYSCTL,
        ..COMMON
    },
    Key {
        name: "net.core.wmem_default",
        shape: number(212_992, 16 * MIB),
        unit: Unit::Bytes,
        scope: Scope::HostNetwork,
        effect: EffectTime::NewSocket,
        range_reason: DATAGRAM_DEFAULT,
        advice: "leave it: TCP takes its buffer from net.ipv4.tcp_wmem",
        source: NET_SYSCTL,
        ..COMMON
    },
    Key {
        name: "net.core.rmem_max",
        shape: number(212_992, 512 * MIB),
        unit: Unit::Bytes,
        scope: Scope::HostNetwork,
        range_reason: BUFFER_CEILING,
        advice: "8 to 16 MiB, and only where a program calls setsockopt(SO_RCVBUF) or speaks QUIC",
        source: NET_SYSCTL,
        ..COMMON
    },
    Key {
        name: "net.core.wmem_max",
        shape: number(212_992, 512 * MIB),
        unit: Unit::Bytes,
        scope: Scope::HostNetwork,
        range_reason: BUFFER_CEILING,
        advice: "8 to 16 MiB, and only where a program calls setsockopt(SO_SNDBUF) or speaks QUIC",
        source: NET_SYSCTL,
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_max_syn_backlog",
        shape: number(128, 65_535),
        range_reason: "each half-open connection takes about 300 bytes, so millions of them take a \
            gigabyte a listener; with SYN cookies on, the queue is cut by net.core.somaxconn and a \
            larger value buys nothing",
        advice: "leave it; 4096 to 8192 at most",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_syncookies",
        shape: number(1, 2),
        unit: Unit::Choice,
        safe_since: Some(4),
        merge: MergeRule::EqualOrConflict,
        range_reason: "1 sends cookies when the queue overflows, 2 always",
        refused_values: &[ValueRule {
            value: 0,
            reason: "without SYN cookies a flood of half-open connections fills the queue and \
                every new client is dropped",
            instead: "1, the default, and a larger net.core.somaxconn",
        }],
        advice: "1",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_tw_reuse",
        shape: number(0, 2),
        unit: Unit::Choice,
        merge: MergeRule::EqualOrConflict,
        range_reason: "0 never, 1 always, 2 for loopback only",
        advice: "2, the default; it concerns outgoing connections only",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_fin_timeout",
        shape: number(5, 600),
        unit: Unit::Seconds,
        safe_since: Some(29),
        merge: MergeRule::EqualOrConflict,
        range_reason: "in less than 5 seconds a peer that lost two segments cannot finish; beyond \
            10 minutes closed connections only hold memory",
        advice: "15 to 60; it shortens FIN_WAIT_2 of closed sockets, not TIME_WAIT",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_max_tw_buckets",
        shape: number(16_384, 2_000_000),
        range_reason: "each socket in TIME_WAIT takes 256 bytes, so 2 million take half a \
            gigabyte; the kernel documentation asks never to lower the limit",
        advice: "leave it; raise it only where TCPTimeWaitOverflow grows",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_max_orphans",
        shape: number(4_096, 262_144),
        scope: Scope::HostNetwork,
        range_reason: "each orphan may hold 64 KiB that cannot be swapped; 262144 is the most that \
            the kernel computes for itself on the largest machines",
        advice: "leave it; watch TCPAbortOnMemory",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_mem",
        shape: vector(3, 64 * MIB, TIB),
        unit: Unit::BytesKeptInPages,
        scope: Scope::HostNetwork,
        merge: MergeRule::ElementwiseMax,
        range_reason: "given in bytes here, although the kernel counts pages (786432 pages of \
            4 KiB are 3221225472 bytes); under 64 MiB all connections of the node stall",
        advice: "leave it to the kernel, which takes 5 to 9 % of the memory; at most a quarter",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_rmem",
        shape: vector(3, 4 * KIB, 512 * MIB),
        unit: Unit::Bytes,
        scope: Scope::PodNetworkInherited,
        safe_since: Some(32),
        merge: MergeRule::ElementwiseMax,
        effect: EffectTime::NewSocket,
        range_reason: SOCKET_BUFFERS,
        advice: "4096 131072 16777216; a default of 4096 makes the first window tiny",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_wmem",
        shape: vector(3, 4 * KIB, 512 * MIB),
        unit: Unit::Bytes,
        scope: Scope::PodNetworkInherited,
        safe_since: Some(32),
        merge: MergeRule::ElementwiseMax,
        effect: EffectTime::NewSocket,
        range_reason: SOCKET_BUFFERS,
        advice: "4096 16384 16777216, or a default of 65536 for large bodies",
        ..COMMON
    },
    Key {
        name: "net.ipv4.ip_local_port_range",
        shape: vector(2, 1, 65_535),
        unit: Unit::Port,
        safe_since: Some(4),
        merge: MergeRule::EqualOrConflict,
        effect: EffectTime::NewSocket,
        range_reason: "port numbers; the low end must not be below \
            net.ipv4.ip_unprivileged_port_start (1024 by default)",
        advice: "32768 60999, the default: a server needs no ports of its own; 10240 65535 for a \
            proxy",
        ..COMMON
    },
    Key {
        name: "net.ipv4.ip_local_reserved_ports",
        shape: Shape::Ports,
        unit: Unit::Port,
        safe_since: Some(27),
        merge: MergeRule::Union,
        effect: EffectTime::NewSocket,
        range_reason: "ports that the kernel does not choose by itself",
        advice: "30000-32767 and the ports of the node's daemons wherever the port range is widened",
        ..COMMON
    },
    Key {
        name: "net.ipv4.ip_unprivileged_port_start",
        shape: number(0, 1_024),
        unit: Unit::Port,
        safe_since: Some(22),
        merge: MergeRule::Min,
        effect: EffectTime::NewSocket,
        range_reason: "1024 is the default; above it ordinary daemons could not bind their ports",
        advice: "80, so that the server binds port 80 without being root",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_window_scaling",
        shape: number(1, 1),
        unit: Unit::Choice,
        merge: MergeRule::EqualOrConflict,
        effect: EffectTime::NewSocket,
        range_reason: "1 is on",
        refused_values: &[ValueRule {
            value: 0,
            reason: "without window scaling no connection has more than 64 KiB under way \
                (RFC 7323 section 2)",
            instead: "1, the default",
        }],
        advice: "1, the default",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_congestion_control",
        // TCP_CA_NAME_MAX of the kernel is 16 with the final zero byte.
        shape: Shape::Word { length_max: 15 },
        unit: Unit::Name,
        scope: Scope::PodNetworkInherited,
        merge: MergeRule::EqualOrConflict,
        effect: EffectTime::NewSocket,
        range_reason: "names longer than 15 characters do not exist in the kernel",
        advice: "cubic inside a data centre, bbr for clients over the Internet",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_slow_start_after_idle",
        shape: number(0, 1),
        unit: Unit::Choice,
        safe_since: Some(37),
        merge: MergeRule::EqualOrConflict,
        range_reason: "0 is off, 1 on",
        advice: "0, so that a persistent connection does not start slowly again",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_keepalive_time",
        shape: number(10, 86_400),
        unit: Unit::Seconds,
        safe_since: Some(29),
        merge: MergeRule::EqualOrConflict,
        range_reason: "below 10 seconds the probes are a load of their own; beyond a day they find \
            nothing",
        advice: "600; only sockets with SO_KEEPALIVE are concerned",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_keepalive_intvl",
        shape: number(1, 3_600),
        unit: Unit::Seconds,
        safe_since: Some(29),
        merge: MergeRule::EqualOrConflict,
        range_reason: "the kernel takes 0 and negative numbers, which probe without a pause",
        advice: "60; only sockets with SO_KEEPALIVE are concerned",
        ..COMMON
    },
    Key {
        name: "net.ipv4.tcp_keepalive_probes",
        shape: number(1, 127),
        safe_since: Some(29),
        merge: MergeRule::EqualOrConflict,
        range_reason: "127 is the most that setsockopt(TCP_KEEPCNT) takes",
        advice: "5; only sockets with SO_KEEPALIVE are concerned",
        ..COMMON
    },
    Key {
        name: "vm.max_map_count",
        shape: number(65_530, 16_777_216),
        scope: Scope::Node,
        range_reason: "65530 is the kernel's default, and other workloads rely on it; a mapping \
            takes 192 bytes, so 16777216 of them take 3 GiB a process",
        advice: "262144",
        source: VM_SYSCTL,
        ..COMMON
    },
    Key {
        name: "fs.nr_open",
        shape: number(1_048_576, 16_777_216),
        scope: Scope::Node,
        release: ReleaseRule::KeepRaised,
        effect: EffectTime::NewSocket,
        range_reason: "1048576 is the kernel's default, and lowering it below the hard limit of a \
            running process locks logins out; a table of 16777216 files takes 128 MiB a process",
        advice: "leave it; it is the ceiling of RLIMIT_NOFILE",
        source: FS_SYSCTL,
        ..COMMON
    },
    Key {
        name: "fs.file-max",
        // The kernel keeps a signed 64-bit number.
        shape: number(65_536, 9_223_372_036_854_775_807),
        scope: Scope::Node,
        range_reason: "65536 open files are too few for a node already",
        advice: "leave it; the limit of a process is its ulimit nofile",
        source: FS_SYSCTL,
        ..COMMON
    },
    Key {
        name: "fs.inotify.max_user_watches",
        shape: number(8_192, 1_048_576),
        scope: Scope::Node,
        range_reason: "the range that the kernel computes its own default in; a watch takes about \
            1 KiB",
        advice: "524288",
        source: "inotify(7)",
        ..COMMON
    },
    Key {
        name: "fs.inotify.max_user_instances",
        shape: number(128, 65_536),
        scope: Scope::Node,
        range_reason: "128 is the kernel's default; an instance is an open file with a queue",
        advice: "8192",
        source: "inotify(7)",
        ..COMMON
    },
];
