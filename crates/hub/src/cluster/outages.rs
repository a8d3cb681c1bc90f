//! Whether clusters fail one by one, or most of them at once. Then it is probably the hub that is cut off, and no report is rewritten
//! before that is clear.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::fleet_view::ClusterName;

/// An outage shorter than this is told nobody; by then it shows whether others began with it.
const SETTLE: Duration = Duration::from_secs(10);
/// Outages that begin within this time of each other may have one cause.
const TOGETHER: Duration = Duration::from_mins(1);
/// How long an outage of most clusters is not told. With [`SPREAD`] below the minute after which
/// verdicts that no watch backs are told to be stale, whatever the reason.
const HOLD: Duration = Duration::from_secs(35);
/// Over how long it is then told, cluster by cluster.
const SPREAD: Duration = Duration::from_secs(20);
/// Fewer outages are no storm, whatever their share.
const MANY: usize = 3;

/// The outages of all clusters of a hub.
#[derive(Debug, Default)]
pub struct Outages {
    clusters: Mutex<BTreeMap<ClusterName, Option<Outage>>>,
    spread: RandomState,
}

/// The last outage of a cluster.
#[derive(Clone, Copy, Debug)]
struct Outage {
    since: Instant,
    over: bool,
}

impl Outages {
    /// A cluster is looked after.
    pub fn known(&self, cluster: &ClusterName) {
        self.clusters.lock().entry(cluster.clone()).or_default();
    }

    /// A cluster is no longer looked after.
    pub fn forget(&self, cluster: &ClusterName) {
        self.clusters.lock().remove(cluster);
    }

    /// A cluster cannot be talked to. Nothing changes where that is known.
    pub fn began(&self, cluster: &ClusterName, now: Instant) {
        let mut clusters = self.clusters.lock();
        let outage = clusters.entry(cluster.clone()).or_default();
        if outage.is_none_or(|outage| outage.over) {
            *outage = Some(Outage { since: now, over: false });
        }
    }

    /// A cluster answers.
    pub fn ended(&self, cluster: &ClusterName) {
        if let Some(Some(outage)) = self.clusters.lock().get_mut(cluster) {
            outage.over = true;
        }
    }

    /// From when on the outage of a cluster is told, as things look now; `None` where there is none.
    pub fn tell_at(&self, cluster: &ClusterName) -> Option<Instant> {
        let clusters = self.clusters.lock();
        let since = clusters.get(cluster).copied().flatten().filter(|outage| !outage.over)?.since;
        // Those that are over count: a network that comes back comes back for one after the other.
        let together = |other: &Outage| other.since.max(since) - other.since.min(since) <= TOGETHER;
        let many = clusters.values().flatten().filter(|other| together(other)).count();
        if many < MANY || many * 2 <= clusters.len() {
            return Some(since + SETTLE);
        }
        let share = u32::try_from(self.spread.hash_one(cluster) % 1000).unwrap_or_default();
        Some(since + HOLD + SPREAD * share / 1000)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn name(number: usize) -> ClusterName {
        ClusterName { namespace: "fleet".into(), name: format!("c{number}").into() }
    }

    fn fleet(clusters: usize) -> Outages {
        let outages = Outages::default();
        for number in 0..clusters {
            outages.known(&name(number));
        }
        outages
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_alone_is_told_soon() {
        let (outages, now) = (fleet(10), Instant::now());
        assert_eq!(outages.tell_at(&name(0)), None);
        for number in 0..5 {
            outages.began(&name(number), now);
            outages.began(&name(number), now + Duration::from_secs(7));
        }
        assert!((0..5).all(|number| outages.tell_at(&name(number)) == Some(now + SETTLE)), "half of them are not most of them");
        outages.ended(&name(0));
        assert_eq!(outages.tell_at(&name(0)), None);
        let later = now + Duration::from_mins(5);
        for number in 5..8 {
            outages.began(&name(number), later);
        }
        assert_eq!(outages.tell_at(&name(7)), Some(later + SETTLE), "what began long ago has another cause");
        let (few, now) = (fleet(2), Instant::now());
        few.began(&name(0), now);
        few.began(&name(1), now);
        assert_eq!(few.tell_at(&name(1)), Some(now + SETTLE), "two reports are no storm");
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_together_is_told_later_and_one_by_one() {
        let (outages, now) = (fleet(100), Instant::now());
        for number in 0..60 {
            outages.began(&name(number), now + Duration::from_millis(100) * u32::try_from(number).unwrap());
        }
        let told: BTreeSet<Instant> = (0..60).filter_map(|number| outages.tell_at(&name(number))).collect();
        assert!(told.len() > 30, "spread");
        assert!(told.first() >= Some(&(now + HOLD)) && told.last() <= Some(&(now + Duration::from_secs(6) + HOLD + SPREAD)));
        assert!(HOLD + SPREAD < Duration::from_mins(1), "an old green is not shown for longer");
        for number in 0..40 {
            outages.ended(&name(number));
        }
        assert!(outages.tell_at(&name(50)) >= Some(now + HOLD), "the return of some does not make the rest urgent");
        for number in 0..60 {
            outages.forget(&name(number));
        }
        outages.began(&name(70), now);
        assert_eq!(outages.tell_at(&name(70)), Some(now + SETTLE));
    }
}
