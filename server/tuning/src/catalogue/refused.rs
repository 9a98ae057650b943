//! Keys that are never written, each with its reason.

/// A name, or a group of names, that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// A name with dots in which one `*` stands for any text.
    pub(crate) pattern: &'static str,
    /// Why it is refused.
    pub(crate) reason: &'static str,
    /// What to use; empty where there is nothing to use.
    pub(crate) instead: &'static str,
}

impl Refusal {
    /// True where this refusal is about that name.
    pub(crate) fn covers(&self, name: &str) -> bool {
        match self.pattern.split_once('*') {
            None => self.pattern == name,
            Some((head, tail)) => {
                name.len() >= head.len() + tail.len()
                    && name.starts_with(head)
                    && name.ends_with(tail)
            }
        }
    }
}

const fn refuse(pattern: &'static str, reason: &'static str, instead: &'static str) -> Refusal {
    Refusal {
        pattern,
        reason,
        instead,
    }
}

const KUBELET: &str = "the kubelet owns it, sets it at start and may refuse to start otherwise";
const KUBE_PROXY: &str = "kube-proxy owns it and writes it at start";
const NETWORK: &str =
    "the network of the pods depends on it: a change cuts pods off or opens the node";
const ROOT: &str = "whoever sets it runs programs as root on the node";
const IPC: &str = "it belongs to the IPC namespace: written in a pod it reads back well and \
    changes nothing on the node";
const IGNORED: &str = "current kernels ignore it";
const DIRTY: &str = "writing one of the pair sets its partner to zero";
const SECURITY: &str = "it is a guard of the kernel's security";

/// In the order in which they are tried: the general patterns stand last.
pub(super) const REFUSALS: &[Refusal] = &[
    refuse(
        "net.ipv4.tcp_tw_recycle",
        "removed in Linux 4.12; before that it broke clients behind address translation",
        "nothing: the kernel reuses what it safely can by itself",
    ),
    refuse(
        "net.ipv4.tcp_collapse_max_bytes",
        "it was never part of the kernel, only of a patch of one company",
        "",
    ),
    refuse("net.ipv4.tcp_adv_win_scale", IGNORED, "net.ipv4.tcp_rmem"),
    refuse("net.ipv4.tcp_low_latency", IGNORED, ""),
    refuse("net.ipv4.tcp_fack", IGNORED, ""),
    refuse(
        "net.ipv4.tcp_timestamps",
        "on by default; off, old segments are taken for new ones (RFC 7323 section 5) and round \
         trips are not measured",
        "nothing: leave it on",
    ),
    refuse(
        "net.ipv4.tcp_sack",
        "on by default; off, each loss costs a round trip a segment",
        "nothing: leave it on",
    ),
    refuse(
        "net.ipv4.tcp_abort_on_overflow",
        "it resets clients where a short wait would have served them",
        "a larger net.core.somaxconn",
    ),
    refuse("net.ipv4.ip_forward", NETWORK, ""),
    refuse("net.*.forwarding", NETWORK, ""),
    refuse("net.*.rp_filter", NETWORK, ""),
    refuse("net.bridge.*", NETWORK, ""),
    refuse(
        "net.netfilter.nf_hooks_lwtunnel",
        "it cannot be put back before the next boot",
        "",
    ),
    refuse(
        "net.netfilter.nf_conntrack_*",
        KUBE_PROXY,
        "the conntrack settings of kube-proxy",
    ),
    refuse(
        "net.nf_conntrack_max",
        KUBE_PROXY,
        "the conntrack settings of kube-proxy",
    ),
    refuse("net.core.bpf_jit_*", SECURITY, ""),
    refuse("vm.overcommit_memory", KUBELET, ""),
    refuse("vm.panic_on_oom", KUBELET, ""),
    refuse("vm.mmap_min_addr", SECURITY, ""),
    refuse("vm.dirty_*ratio", DIRTY, ""),
    refuse("vm.dirty_*bytes", DIRTY, ""),
    refuse("kernel.panic", KUBELET, ""),
    refuse("kernel.panic_on_oops", KUBELET, ""),
    refuse("kernel.keys.root_max*", KUBELET, ""),
    refuse(
        "kernel.pid_max",
        "it belongs to the pid namespace: written in a pod it reads back well and changes nothing \
         on the node",
        "podPidsLimit of the kubelet",
    ),
    refuse("kernel.shm*", IPC, ""),
    refuse("kernel.msg*", IPC, ""),
    refuse("kernel.sem", IPC, ""),
    refuse("kernel.core_pattern", ROOT, ""),
    refuse("kernel.modprobe", ROOT, ""),
    refuse("kernel.hotplug", ROOT, ""),
    refuse(
        "kernel.threads-max",
        "the kernel computes it from the memory, and accepts values at which nothing runs",
        "pod.resources",
    ),
    refuse("kernel.sched_*", "moved out of /proc/sys in Linux 5.13", ""),
    refuse(
        "kernel.*",
        "a web server needs no key of this group, and many of them are guards",
        "",
    ),
];
