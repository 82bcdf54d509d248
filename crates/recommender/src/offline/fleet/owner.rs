//! The workload of a pod by its name, where nothing else says it.

/// What owns a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) kind: String,
    pub(super) name: String,
}

/// The letters of generated names.
const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";

/// The minutes since 1970 that the Jobs of a `CronJob` have in their names: from 2019 to 2046. A date such as 20260131 is none.
const SCHEDULED: std::ops::Range<u32> = 26_000_000..40_000_000;

/// Guesses the owner of a pod: `web-6b7f9c5d8c-x2x4z` is of a Deployment, `db-0` of a `StatefulSet`, `backup-29068597-x2x4z` of
/// a `CronJob`, `agent-x2x4z` of a `DaemonSet` or something like it.
pub(super) fn owner_by_name(pod: &str) -> Owner {
    let owner = |kind: &str, name: &str| Owner { kind: kind.to_owned(), name: name.to_owned() };
    let Some((rest, last)) = pod.rsplit_once('-') else { return owner("Pod", pod) };
    if rest.is_empty() || last.is_empty() {
        return owner("Pod", pod);
    }
    if last.len() == 5 && is_generated(last) {
        return match rest.rsplit_once('-') {
            Some((name, minutes)) if !name.is_empty() && is_scheduled(minutes) => owner("CronJob", name),
            Some((name, hash))
                if !name.is_empty() && (5..=10).contains(&hash.len()) && is_generated(hash) =>
            {
                owner("Deployment", name)
            }
            _ => owner("Controller", rest),
        };
    }
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        owner("StatefulSet", rest)
    } else {
        owner("Pod", pod)
    }
}

fn is_scheduled(text: &str) -> bool {
    text.parse().is_ok_and(|minutes| SCHEDULED.contains(&minutes))
}

fn is_generated(text: &str) -> bool {
    text.chars().all(|letter| LETTERS.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_workload_a_pod_is_of() {
        for (pod, kind, name) in [
            ("web-6b7f9c5d8c-x2x4z", "Deployment", "web"),
            ("my-web-app-6b7f9c5d8c-x2x4z", "Deployment", "my-web-app"),
            ("backup-29068597-x2x4z", "CronJob", "backup"),
            ("backup-20260131-x2x4z", "Controller", "backup-20260131"),
            ("db-0", "StatefulSet", "db"),
            ("my-db-12", "StatefulSet", "my-db"),
            ("agent-x2x4z", "Controller", "agent"),
            ("node-agent-x2x4z", "Controller", "node-agent"),
            ("etcd-master", "Pod", "etcd-master"),
            ("plain", "Pod", "plain"),
            ("-", "Pod", "-"),
            ("", "Pod", ""),
        ] {
            assert_eq!(owner_by_name(pod), Owner { kind: kind.to_owned(), name: name.to_owned() }, "{pod}");
        }
    }
}
