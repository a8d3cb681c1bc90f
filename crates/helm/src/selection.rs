//! Which revision of a release is desired, and whether that still holds right before a write.

use crate::history::{RecordMeta, Status};

/// What the records of one release say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection<'a> {
    /// The state of the release.
    pub state: State<'a>,
    /// How many records are `deployed`. More than one is worth a warning: Helm, like us, then takes the highest.
    pub deployed: usize,
    /// Highest revision of any status; 0 without records.
    pub newest: u64,
    /// The highest of the deployed records.
    highest: Option<&'a RecordMeta>,
}

/// The state of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'a> {
    /// There are no records.
    Absent,
    /// The newest deployed revision is the last word: desired state.
    Deployed(&'a RecordMeta),
    /// Helm is at work on a revision newer than the deployed one, or died over it: hands off.
    Pending {
        /// The newest pending revision.
        pending: &'a RecordMeta,
        /// The last deployed revision.
        deployed: Option<&'a RecordMeta>,
    },
    /// Helm is removing the release: hands off.
    Uninstalling(&'a RecordMeta),
    /// The release is gone, its history was kept.
    Uninstalled(&'a RecordMeta),
    /// The newest revision failed; the cluster may hold a mixture.
    Failed {
        /// The failed revision.
        failed: &'a RecordMeta,
        /// The last deployed revision: what `onFailedRelease` judges against.
        deployed: Option<&'a RecordMeta>,
    },
    /// The newest revision is superseded and its successor not visible, as for the milliseconds in which Helm flips
    /// the old record before the new one: counts as pending.
    Between(&'a RecordMeta),
    /// The newest revision has status `unknown`.
    Unclear(&'a RecordMeta),
}

impl<'a> State<'a> {
    /// The revision that may be judged and corrected without asking any policy.
    pub fn desired(&self) -> Option<&'a RecordMeta> {
        match self {
            Self::Deployed(record) => Some(record),
            _ => None,
        }
    }

    /// The last deployed revision, whatever came after it.
    pub fn last_deployed(&self) -> Option<&'a RecordMeta> {
        match self {
            Self::Deployed(record) => Some(record),
            Self::Pending { deployed, .. } | Self::Failed { deployed, .. } => *deployed,
            Self::Absent | Self::Uninstalling(_) | Self::Uninstalled(_) | Self::Between(_) | Self::Unclear(_) => None,
        }
    }

    /// Why the release is not simply in sync or not: the reason for the `InSync` condition. `None` when it can be judged.
    /// Whether an `Absent` release vanished or never was, and whether a pending one is stuck, needs memory and a clock.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Deployed(_) => None,
            Self::Absent => Some("RecordsVanished"),
            Self::Pending { .. } | Self::Between(_) => Some("ReleasePending"),
            Self::Uninstalling(_) => Some("ReleaseUninstalling"),
            Self::Uninstalled(_) => Some("ReleaseUninstalled"),
            Self::Failed { .. } => Some("ReleaseFailed"),
            Self::Unclear(_) => Some("RecordInvalid"),
        }
    }
}

impl<'a> Selection<'a> {
    /// The revisions whose objects may stand on the cluster, at most two: the last deployed one, and a newer one that did not get there
    /// or is being removed. A release claims what they declare; of one that is uninstalled nothing is left.
    pub fn in_force(&self) -> impl Iterator<Item = &'a RecordMeta> + use<'a> {
        let newer = match self.state {
            State::Absent | State::Deployed(_) | State::Uninstalled(_) => None,
            State::Pending { pending: record, .. }
            | State::Failed { failed: record, .. }
            | State::Uninstalling(record)
            | State::Between(record)
            | State::Unclear(record) => Some(record),
        };
        let highest = self.highest.filter(|_| !matches!(self.state, State::Uninstalled(_)));
        highest.into_iter().chain(newer)
    }
}

/// Reads the records of **one** release, in any order.
///
/// A pending or uninstalling record below the newest deployed one is a leftover of a killed Helm and means nothing.
pub fn select(records: &[RecordMeta]) -> Selection<'_> {
    let newest = records.iter().max_by_key(|record| record.version);
    let deployed = records.iter().filter(|record| record.status == Status::Deployed).max_by_key(|record| record.version);
    let after = deployed.map_or(0, |record| record.version);
    let newest_after = |wanted: fn(Status) -> bool| {
        records.iter().filter(|record| record.version > after && wanted(record.status)).max_by_key(|record| record.version)
    };

    let state = match newest {
        None => State::Absent,
        Some(newest) => {
            if let Some(pending) = newest_after(Status::is_pending) {
                State::Pending { pending, deployed }
            } else if let Some(uninstalling) = newest_after(|status| status == Status::Uninstalling) {
                State::Uninstalling(uninstalling)
            } else {
                match newest.status {
                    Status::Deployed => State::Deployed(newest),
                    Status::Failed => State::Failed { failed: newest, deployed },
                    Status::Uninstalled => State::Uninstalled(newest),
                    Status::Superseded => State::Between(newest),
                    _ => State::Unclear(newest),
                }
            }
        }
    };
    Selection {
        state,
        deployed: records.iter().filter(|record| record.status == Status::Deployed).count(),
        newest: newest.map_or(0, |record| record.version),
        highest: deployed,
    }
}

/// The revision a decision was made on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Its revision.
    pub version: u64,
    /// UID of its record.
    pub uid: String,
    /// Highest revision known when judging: above `version` only where a policy corrects towards the last deployed
    /// revision although a newer one failed.
    pub newest: u64,
}

impl Judged {
    /// The last deployed revision of `selection`, as the one being judged.
    pub fn of(selection: &Selection<'_>) -> Option<Self> {
        let record = selection.state.last_deployed()?;
        Some(Self { version: record.version, uid: record.uid.clone(), newest: selection.newest })
    }
}

/// Whether a write decided on an earlier look at the records may still start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fence {
    /// Nothing happened since.
    Clear,
    /// There is a newer revision: judge again.
    Newer,
    /// Helm is at work: hands off.
    Pending,
    /// The judged record is gone, another object has its place, or it is no longer the deployed one.
    Gone,
}

/// The check right before a write, on a consistent list of the release's records.
pub fn fence(judged: &Judged, records: &[RecordMeta]) -> Fence {
    if records.iter().any(|record| record.version > judged.version && record.status.is_pending()) {
        return Fence::Pending;
    }
    if records.iter().any(|record| record.version > judged.newest) {
        return Fence::Newer;
    }
    // A newer record that failed before may since have become the deployed or the uninstalling one.
    let overtaken = |record: &RecordMeta| {
        record.version > judged.version && matches!(record.status, Status::Deployed | Status::Uninstalling | Status::Uninstalled)
    };
    if records.iter().any(overtaken) {
        return Fence::Newer;
    }
    match records.iter().find(|record| record.version == judged.version) {
        Some(record) if record.uid == judged.uid && record.status == Status::Deployed => Fence::Clear,
        Some(record) if record.uid == judged.uid && record.status.is_pending() => Fence::Pending,
        _ => Fence::Gone,
    }
}
