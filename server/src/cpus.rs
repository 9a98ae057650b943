//! How many workers this process should run: one for each CPU that it may use.

use std::fs;
use std::path::{Path, PathBuf};

use tunedweb_config::{WorkersReport, WorkersSource};

/// As many workers as the settings permit (`server.workers`).
const WORKERS_MAX: u16 = 256;

/// Decides the number of workers.
pub(crate) fn workers(asked: Option<u16>) -> WorkersReport {
    let quota = quota_millicpus(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    decide(asked, affinity_cpus(), quota)
}

/// A quota counts as the next whole number of CPUs: with one worker fewer a part of it could never
/// be used.
fn decide(asked: Option<u16>, affinity_cpus: u32, quota_millicpus: Option<u64>) -> WorkersReport {
    let of_affinity = u16::try_from(affinity_cpus).unwrap_or(WORKERS_MAX);
    let of_quota =
        quota_millicpus.map(|quota| u16::try_from(quota.div_ceil(1_000)).unwrap_or(WORKERS_MAX));
    let (running, source) = match (asked, of_quota) {
        (Some(asked), _) => (asked, WorkersSource::Settings),
        (None, Some(of_quota)) if of_quota < of_affinity => (of_quota, WorkersSource::CgroupQuota),
        _ => (of_affinity, WorkersSource::AffinityMask),
    };
    let running = running.clamp(1, WORKERS_MAX);
    WorkersReport {
        asked,
        running,
        source,
        affinity_cpus,
        quota_millicpus,
    }
}

/// sched_getaffinity(2); one CPU if it cannot be read, since at least one runs this.
fn affinity_cpus() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |cpus| cpus.count())
}

/// The smallest CPU quota of the cgroups that this process is in, of version 1 and 2
/// (cgroups(7)); none: no quota.
///
/// A container sees its own cgroup as the root of `cgroups`, or, without a cgroup namespace, is
/// told a path of the host which may not exist here; so the quotas of every folder on the way from
/// the root are looked at, and those that do not exist do not count.
fn quota_millicpus(membership: &Path, cgroups: &Path) -> Option<u64> {
    let membership = fs::read_to_string(membership).unwrap_or_default();
    let mut quotas: Vec<u64> = Vec::new();
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let is_version_2 = controllers.is_empty();
        if !is_version_2 && !controllers.split(',').any(|name| name == "cpu") {
            continue;
        }
        for mount in mounts(cgroups, controllers) {
            for folder in on_the_way(&mount, path) {
                quotas.extend(if is_version_2 {
                    quota_2(&folder)
                } else {
                    quota_1(&folder)
                });
            }
        }
    }
    quotas.into_iter().min()
}

/// Where the hierarchy may be mounted.
fn mounts(cgroups: &Path, controllers: &str) -> Vec<PathBuf> {
    if controllers.is_empty() {
        // beside version 1 hierarchies, version 2 is mounted in a folder of its own
        return vec![cgroups.to_owned(), cgroups.join("unified")];
    }
    vec![cgroups.join(controllers), cgroups.join("cpu")]
}

fn on_the_way(mount: &Path, path: &str) -> Vec<PathBuf> {
    let mut folder = mount.to_owned();
    let mut folders = vec![folder.clone()];
    for name in path
        .split('/')
        .filter(|name| !matches!(*name, "" | "." | ".."))
    {
        folder.push(name);
        folders.push(folder.clone());
    }
    folders
}

/// `cpu.max`: quota (or `max`) and period, in microseconds.
fn quota_2(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
    let mut words = text.split_ascii_whitespace();
    millicpus(words.next()?, words.next()?)
}

/// `cpu.cfs_quota_us`, -1 for none, and `cpu.cfs_period_us`.
fn quota_1(folder: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    millicpus(
        read("cpu.cfs_quota_us")?.trim(),
        read("cpu.cfs_period_us")?.trim(),
    )
}

fn millicpus(quota: &str, period: &str) -> Option<u64> {
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    quota.checked_mul(1_000)?.checked_div(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quota that a process with this `/proc/self/cgroup` has among these files.
    fn quota(membership: &str, files: &[(&str, &str)]) -> Option<u64> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("membership"), membership).unwrap();
        for (name, text) in files {
            let path = folder.path().join("cgroup").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        quota_millicpus(
            &folder.path().join("membership"),
            &folder.path().join("cgroup"),
        )
    }

    #[test]
    fn a_container_reads_its_quota_at_the_root_of_version_2() {
        assert_eq!(
            quota("0::/\n", &[("cpu.max", "150000 100000\n")]),
            Some(1_500)
        );
        assert_eq!(quota("0::/\n", &[("cpu.max", "max 100000\n")]), None);
        assert_eq!(quota("0::/\n", &[]), None);
    }

    #[test]
    fn the_smallest_quota_on_the_way_counts() {
        let files = [
            ("kubepods/cpu.max", "800000 100000\n"),
            ("kubepods/pod1/cpu.max", "200000 100000\n"),
            ("kubepods/pod1/c/cpu.max", "max 100000\n"),
            ("other/cpu.max", "1000 100000\n"),
        ];
        assert_eq!(quota("0::/kubepods/pod1/c\n", &files), Some(2_000));
    }

    #[test]
    fn a_container_reads_its_quota_in_version_1() {
        let files = [
            ("cpu,cpuacct/cpu.cfs_quota_us", "50000\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(
            quota("4:memory:/x\n3:cpu,cpuacct:/not/here\n0::/\n", &files),
            Some(500)
        );
        let files = [
            ("cpu/a/cpu.cfs_quota_us", "-1\n"),
            ("cpu/a/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(quota("1:cpu:/a\n", &files), None);
    }

    #[test]
    fn text_that_is_no_quota_is_none() {
        assert_eq!(quota("0::/\n", &[("cpu.max", "100000 0\n")]), None);
        assert_eq!(quota("nonsense\n", &[("cpu.max", "1 1\n")]), None);
    }

    #[test]
    fn the_settings_win_then_the_quota_then_the_mask() {
        let decided = |asked, cpus, quota| {
            let report = decide(asked, cpus, quota);
            (report.running, report.source)
        };
        assert_eq!(decided(Some(9), 2, Some(500)), (9, WorkersSource::Settings));
        assert_eq!(
            decided(None, 8, Some(1_500)),
            (2, WorkersSource::CgroupQuota)
        );
        assert_eq!(decided(None, 8, Some(100)), (1, WorkersSource::CgroupQuota));
        assert_eq!(
            decided(None, 8, Some(9_000)),
            (8, WorkersSource::AffinityMask)
        );
        assert_eq!(decided(None, 8, None), (8, WorkersSource::AffinityMask));
        assert_eq!(
            decided(None, 1_024, None),
            (256, WorkersSource::AffinityMask)
        );
    }
}
