//! What the Lease says, and what a hub does about it. Pure: told the time.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use tokio::time::Instant;

use super::{LASTS, LEASE};

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The Lease does not exist and may be made.
    Create,
    /// It is nobody's, or its holder has been silent for too long.
    Take,
    /// It is ours.
    Renew,
    /// It is somebody else's.
    Wait,
}

/// What was seen of other holders: a Lease is theirs until it did not change for as long as it lasts.
#[derive(Debug, Default)]
pub struct Others {
    seen: Option<Seen>,
    looked: Option<Instant>,
}

/// Who did not look for longer does not know what went on: neither may the holder, for example because the API server was down.
const BLIND: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Seen {
    version: String,
    at: Instant,
    lasts: Duration,
}

impl Others {
    /// Looks at the Lease as it was read at `now`.
    pub fn judge(&mut self, lease: Option<&Lease>, own: &str, now: Instant) -> Act {
        let blind = self.looked.replace(now).map_or(Duration::ZERO, |looked| now.duration_since(looked));
        if let Some(seen) = self.seen.as_mut().filter(|_| blind > BLIND) {
            seen.at += blind.saturating_sub(BLIND);
        }
        let Some(lease) = lease else {
            // Somebody deleted it; the holder we knew does not know that yet.
            let is_over = self.seen.as_ref().is_none_or(|seen| seen.is_over(now));
            return if is_over { Act::Create } else { Act::Wait };
        };
        match holder(lease) {
            None => Act::Take,
            Some(holder) if holder == own => Act::Renew,
            Some(_) => {
                let version = lease.metadata.resource_version.as_deref().unwrap_or_default();
                match &self.seen {
                    Some(seen) if seen.version == version => {
                        if seen.is_over(now) {
                            Act::Take
                        } else {
                            Act::Wait
                        }
                    }
                    _ => {
                        self.seen = Some(Seen { version: version.to_owned(), at: now, lasts: lasts(lease) });
                        Act::Wait
                    }
                }
            }
        }
    }
}

impl Seen {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.at) >= self.lasts
    }
}

/// Who holds it.
pub fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// Never shorter than ours: whoever wrote it may hold it by other rules, and patience harms nobody.
fn lasts(lease: &Lease) -> Duration {
    let said = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).and_then(|seconds| u64::try_from(seconds).ok());
    said.map_or(LASTS, |seconds| Duration::from_secs(seconds).clamp(LASTS, LASTS * 4))
}

/// The Lease as `own` holds it from `now` on, made of the one that was read.
pub fn held(before: Option<&Lease>, own: &str, now: Timestamp) -> Lease {
    let mut lease = before
        .cloned()
        .unwrap_or_else(|| Lease { metadata: ObjectMeta { name: Some(LEASE.to_owned()), ..ObjectMeta::default() }, spec: None });
    let is_ours = holder(&lease) == Some(own);
    let spec = lease.spec.get_or_insert_default();
    if !is_ours {
        spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |transitions| transitions.saturating_add(1)));
        spec.acquire_time = Some(MicroTime(now));
        spec.holder_identity = Some(own.to_owned());
    }
    spec.renew_time = Some(MicroTime(now));
    spec.lease_duration_seconds = i32::try_from(LASTS.as_secs()).ok();
    lease
}

/// The Lease as its holder leaves it: anybody may take it at once.
pub fn released(before: &Lease, now: Timestamp) -> Lease {
    let mut lease = before.clone();
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    lease.spec = Some(LeaseSpec { lease_transitions: transitions, renew_time: Some(MicroTime(now)), ..LeaseSpec::default() });
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, version: &str) -> Lease {
        let mut lease = held(None, holder, Timestamp::UNIX_EPOCH);
        lease.metadata.resource_version = Some(version.to_owned());
        lease
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_when_it_did_not_change_for_as_long_as_it_lasts() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let free = released(&lease("other", "1"), Timestamp::UNIX_EPOCH);
        let (first, second) = (lease("other", "1"), lease("other", "2"));
        // Looked at every second; then, what was seen from which second on.
        let steps = [
            (&first, 0..24, Act::Wait, "not long enough"),
            (&second, 24..49, Act::Wait, "renewed, and counted from the renewal"),
            (&second, 49..50, Act::Take, "silent for 25 s"),
            (&free, 50..51, Act::Take, "released"),
            (&first, 51..60, Act::Wait, "taken by somebody else"),
            (&first, 100..112, Act::Wait, "of the time in which nobody looked only what is usual counts"),
            (&first, 112..113, Act::Take, "8 s before it, 5 s of it and 12 s after it"),
        ];
        let mut others = Others::default();
        for (lease, seconds, act, why) in steps {
            for second in seconds {
                assert_eq!(others.judge(Some(lease), "us", at(second)), act, "{why}: {second}");
            }
        }
        let (mut slow, mut second) = (Others::default(), 0);
        while slow.judge(Some(&first), "us", at(second)) == Act::Wait {
            second += 8;
        }
        assert_eq!(second, 40, "an API that answers every eighth second only makes it take longer");
        assert_eq!(Others::default().judge(Some(&lease("us", "3")), "us", now), Act::Renew);
        let mut nameless = lease("other", "1");
        nameless.spec.as_mut().unwrap().holder_identity = Some(String::new());
        assert_eq!(Others::default().judge(Some(&nameless), "us", now), Act::Take, "as other programs release");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_deleted_is_still_its_holders_for_a_while() {
        let now = Instant::now();
        let mut others = Others::default();
        assert_eq!(others.judge(None, "us", now), Act::Create, "nobody was ever seen");
        others.judge(Some(&lease("other", "1")), "us", now);
        for second in 1..=25 {
            let act = if second < 25 { Act::Wait } else { Act::Create };
            assert_eq!(others.judge(None, "us", now + Duration::from_secs(second)), act);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_lease_says_of_its_length_never_makes_us_impatient() {
        for (seconds, expected) in [(None, 25), (Some(-1), 25), (Some(1), 25), (Some(40), 40), (Some(i32::MAX), 100)] {
            let mut lease = lease("other", "1");
            lease.spec.as_mut().unwrap().lease_duration_seconds = seconds;
            assert_eq!(lasts(&lease), Duration::from_secs(expected), "{seconds:?}");
        }
    }

    #[test]
    fn holders_follow_each_other() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let first = held(None, "a", at(1));
        let renewed = held(Some(&first), "a", at(2));
        let taken = held(Some(&renewed), "b", at(3));
        let free = released(&taken, at(4));
        let again = held(Some(&free), "a", at(5));
        let told = |lease: &Lease| {
            let spec = lease.spec.clone().unwrap();
            let second = |time: Option<MicroTime>| time.map(|time| time.0.as_second());
            (spec.holder_identity.unwrap_or_default(), second(spec.acquire_time), second(spec.renew_time), spec.lease_transitions)
        };
        assert_eq!(told(&first), ("a".to_owned(), Some(1), Some(1), Some(0)));
        assert_eq!(told(&renewed), ("a".to_owned(), Some(1), Some(2), Some(0)));
        assert_eq!(told(&taken), ("b".to_owned(), Some(3), Some(3), Some(1)));
        assert_eq!(told(&free), (String::new(), None, Some(4), Some(1)));
        assert_eq!(told(&again), ("a".to_owned(), Some(5), Some(5), Some(2)));
    }
}
