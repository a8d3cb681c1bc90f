//! The records of a release as their labels describe them, without reading a body.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use thiserror::Error;

/// Start of every record's object name; the release name, `.v` and the revision follow.
const NAME_PREFIX: &str = "sh.helm.release.v1.";

/// Status of a revision, as Helm writes it in the label and the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Helm does not know.
    Unknown,
    /// This revision's objects are on the cluster.
    Deployed,
    /// The release was uninstalled and its history kept.
    Uninstalled,
    /// A later revision was deployed.
    Superseded,
    /// Installing this revision failed, possibly half-way.
    Failed,
    /// Helm is removing the release.
    Uninstalling,
    /// Helm is installing the first revision.
    PendingInstall,
    /// Helm is upgrading to this revision.
    PendingUpgrade,
    /// Helm is rolling back to what this revision copies.
    PendingRollback,
}

impl Status {
    /// The status called `text`, if Helm has one of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "unknown" => Self::Unknown,
            "deployed" => Self::Deployed,
            "uninstalled" => Self::Uninstalled,
            "superseded" => Self::Superseded,
            "failed" => Self::Failed,
            "uninstalling" => Self::Uninstalling,
            "pending-install" => Self::PendingInstall,
            "pending-upgrade" => Self::PendingUpgrade,
            "pending-rollback" => Self::PendingRollback,
            _ => return None,
        })
    }

    /// Helm's name for the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Deployed => "deployed",
            Self::Uninstalled => "uninstalled",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Uninstalling => "uninstalling",
            Self::PendingInstall => "pending-install",
            Self::PendingUpgrade => "pending-upgrade",
            Self::PendingRollback => "pending-rollback",
        }
    }

    /// Whether Helm is at work on this revision, or died while it was.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Kind of object that Helm keeps records in (`HELM_DRIVER`). Other drivers keep them where no API server shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Store {
    /// Secrets, Helm's default.
    Secrets,
    /// ConfigMaps.
    ConfigMaps,
}

impl Store {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Secrets, Self::ConfigMaps];

    /// The plural, as in URLs and in sentences.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Secrets => "secrets",
            Self::ConfigMaps => "configmaps",
        }
    }

    /// Whether an object of this kind that carries Helm's labels is a record at all. Secrets of records have a type of their own, by
    /// which they are selected; of ConfigMaps only the name tells.
    pub fn holds(self, name: &str) -> bool {
        self == Self::Secrets || name.starts_with(NAME_PREFIX)
    }
}

/// Metadata of a record's object, as a metadata-only list or watch gives it.
#[derive(Clone, Copy, Debug)]
pub struct StoredMeta<'a> {
    /// What kind of object it is.
    pub store: Store,
    /// Name of the object.
    pub name: &'a str,
    /// Namespace of the object, which is the release's.
    pub namespace: &'a str,
    /// UID of the object.
    pub uid: &'a str,
    /// Resource version of the object.
    pub resource_version: &'a str,
    /// `metadata.creationTimestamp`, by the API server's clock.
    pub created: Option<Timestamp>,
    /// Labels of the object.
    pub labels: &'a BTreeMap<String, String>,
}

/// One revision of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMeta {
    /// Kind of object the record is kept in.
    pub store: Store,
    /// Name of that object.
    pub stored_name: String,
    /// Release name.
    pub name: String,
    /// Release namespace.
    pub namespace: String,
    /// Revision, from 1.
    pub version: u64,
    /// Status of the revision.
    pub status: Status,
    /// UID of the object: a purged and re-created record has another.
    pub uid: String,
    /// Resource version of the object.
    pub resource_version: String,
    /// When the object was created, by the API server's clock.
    pub created: Option<Timestamp>,
    /// The label `modifiedAt`, by the clock of whoever ran Helm; for people only, Helm copies it between revisions.
    pub modified: Option<Timestamp>,
}

/// An object that looks like a release record but cannot be one.
///
/// It may stand for the newest revision, so a release that has one is not judged from its other records.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{error}")]
pub struct InvalidMeta {
    /// Name of the object.
    pub stored_name: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Release it seems to belong to: the label, else what the object is called.
    pub release: Option<String>,
    /// What is odd.
    pub error: MetaError,
}

/// What is odd about a record's labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum MetaError {
    /// No label `owner=helm`.
    #[error("the record's label `owner` is not `helm`")]
    NotHelm,
    /// The label `name` is missing or empty.
    #[error("the record has no label `name`")]
    BadName,
    /// The label `version` is missing or no revision number.
    #[error("the record's label `version` is not a revision")]
    BadVersion,
    /// The label `status` is missing or none of Helm's.
    #[error("the record's label `status` is not one of Helm's")]
    BadStatus,
    /// The object is called otherwise than its labels say.
    #[error("the record's labels do not match its object's name")]
    NameMismatch,
}

impl MetaError {
    /// Stable word for conditions and metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotHelm => "NotHelm",
            Self::BadName => "BadNameLabel",
            Self::BadVersion => "BadVersionLabel",
            Self::BadStatus => "BadStatusLabel",
            Self::NameMismatch => "NameMismatch",
        }
    }
}

impl RecordMeta {
    /// Reads an object's labels and checks them against its name.
    pub fn parse(stored: &StoredMeta<'_>) -> Result<Self, InvalidMeta> {
        Self::read(stored).map_err(|error| InvalidMeta {
            stored_name: stored.name.to_owned(),
            namespace: stored.namespace.to_owned(),
            release: label(stored, "name").or_else(|| release_of(stored.name)).map(str::to_owned),
            error,
        })
    }

    fn read(stored: &StoredMeta<'_>) -> Result<Self, MetaError> {
        if label(stored, "owner") != Some("helm") {
            return Err(MetaError::NotHelm);
        }
        let name = label(stored, "name").ok_or(MetaError::BadName)?;
        let version = label(stored, "version").and_then(revision).ok_or(MetaError::BadVersion)?;
        let status = label(stored, "status").and_then(Status::parse).ok_or(MetaError::BadStatus)?;
        if stored.name != format!("{NAME_PREFIX}{name}.v{version}") {
            return Err(MetaError::NameMismatch);
        }
        Ok(Self {
            store: stored.store,
            stored_name: stored.name.to_owned(),
            name: name.to_owned(),
            namespace: stored.namespace.to_owned(),
            version,
            status,
            uid: stored.uid.to_owned(),
            resource_version: stored.resource_version.to_owned(),
            created: stored.created,
            modified: label(stored, "modifiedAt").and_then(|text| text.parse().ok()).and_then(|secs| Timestamp::from_second(secs).ok()),
        })
    }
}

fn label<'a>(stored: &StoredMeta<'a>, key: &str) -> Option<&'a str> {
    stored.labels.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// A revision as Helm prints it: no sign, no leading zero.
fn revision(text: &str) -> Option<u64> {
    text.parse().ok().filter(|version: &u64| *version > 0 && version.to_string() == text)
}

fn release_of(stored_name: &str) -> Option<&str> {
    stored_name.strip_prefix(NAME_PREFIX)?.rsplit_once(".v").map(|(name, _)| name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(stored_name: &str, labels: &[(&str, &str)]) -> Result<RecordMeta, InvalidMeta> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        RecordMeta::parse(&StoredMeta {
            store: Store::Secrets,
            name: stored_name,
            namespace: "t",
            uid: "u",
            resource_version: "7",
            created: None,
            labels: &labels,
        })
    }

    #[test]
    fn reads_what_helm_writes() {
        let labels =
            [("owner", "helm"), ("name", "web"), ("status", "deployed"), ("version", "12"), ("modifiedAt", "1760000000"), ("team", "x")];
        let meta = parse("sh.helm.release.v1.web.v12", &labels).unwrap();
        assert_eq!((meta.name.as_str(), meta.namespace.as_str(), meta.version, meta.status), ("web", "t", 12, Status::Deployed));
        assert_eq!(meta.modified, Timestamp::from_second(1_760_000_000).ok());
        assert!(
            parse("sh.helm.release.v1.a.v1.v3", &[("owner", "helm"), ("name", "a.v1"), ("status", "failed"), ("version", "3")]).is_ok()
        );
    }

    #[test]
    fn odd_labels_are_typed_and_keep_the_release() {
        let good = [("owner", "helm"), ("name", "web"), ("status", "deployed"), ("version", "1")];
        let table = [
            ("owner", "someone", MetaError::NotHelm),
            ("name", "", MetaError::BadName),
            ("name", "other", MetaError::NameMismatch),
            ("status", "DEPLOYED", MetaError::BadStatus),
            ("status", "", MetaError::BadStatus),
            ("version", "x", MetaError::BadVersion),
            ("version", "01", MetaError::BadVersion),
            ("version", "+1", MetaError::BadVersion),
            ("version", "0", MetaError::BadVersion),
            ("version", "-1", MetaError::BadVersion),
            ("version", "99999999999999999999", MetaError::BadVersion),
            ("version", "2", MetaError::NameMismatch),
        ];
        for (key, value, error) in table {
            let labels = good.map(|(k, v)| (k, if k == key { value } else { v }));
            let invalid = parse("sh.helm.release.v1.web.v1", &labels).unwrap_err();
            assert_eq!(invalid.error, error, "{key}={value}");
            assert_eq!(invalid.release.as_deref(), Some(if value == "other" { "other" } else { "web" }));
            assert!(!invalid.to_string().contains(value) || value.is_empty() || value.len() == 1);
        }
        assert_eq!(parse("nonsense", &[]).unwrap_err().release, None);
    }

    #[test]
    fn statuses_round_trip() {
        use Status::*;
        for status in [Unknown, Deployed, Uninstalled, Superseded, Failed, Uninstalling, PendingInstall, PendingUpgrade, PendingRollback] {
            assert_eq!(Status::parse(status.as_str()), Some(status));
            assert_eq!(status.is_pending(), status.as_str().starts_with("pending-"));
        }
        assert_eq!(Status::parse("pending"), None);
    }
}
