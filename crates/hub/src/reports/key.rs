//! Which report: its cluster and source, and the names that follow from them.

use std::{collections::BTreeMap, fmt, fmt::Write as _, sync::Arc};

use holdfast_api::{
    CLUSTER_NAME_LABEL, SOURCE_LABEL,
    report::{DriftReportSpec, SourceKind},
};
use sha2::{Digest, Sha256};

use crate::fleet_view::{ClusterName, ObjectName};

/// Longest name and label value. Names could be longer, but this fits everywhere.
const MAX: usize = 63;
/// Hexadecimal digits of the hash in a name: among a million reports a collision has odds of one in two million.
const HASH_DIGITS: usize = 15;

/// A source on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId {
    /// Kind of source.
    pub kind: SourceKind,
    /// Namespace on the workload cluster; empty for a cluster itself.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Identity of a report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReportKey {
    /// The cluster.
    pub cluster: ClusterName,
    /// The source on it.
    pub source: SourceId,
}

impl SourceId {
    /// The source that stands for the connection to a cluster.
    pub fn cluster(name: &ClusterName) -> Self {
        Self { kind: SourceKind::Cluster, namespace: String::new(), name: name.name.to_string() }
    }

    /// A Helm release.
    pub fn helm(namespace: &str, name: &str) -> Self {
        Self { kind: SourceKind::HelmRelease, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    const fn kind_word(kind: SourceKind) -> &'static str {
        match kind {
            SourceKind::Cluster => "Cluster",
            SourceKind::HelmRelease => "HelmRelease",
            SourceKind::Manifests => "Manifests",
        }
    }

    /// Reads what `Display` writes.
    fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ')?;
        let kind = [SourceKind::Cluster, SourceKind::HelmRelease, SourceKind::Manifests]
            .into_iter()
            .find(|kind| Self::kind_word(*kind) == word)?;
        let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
        Some(Self { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::kind_word(self.kind))?;
        f.write_char(' ')?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

impl ReportKey {
    /// The report about a cluster itself.
    pub fn cluster(name: &ClusterName) -> Self {
        Self { cluster: name.clone(), source: SourceId::cluster(name) }
    }

    /// Where the report lives. The same key always has the same name, and two keys never share one: the hash covers all parts.
    pub fn object_name(&self) -> ObjectName {
        let readable = match self.source.kind {
            SourceKind::Cluster => format!("{}-cluster", self.cluster.name),
            SourceKind::HelmRelease | SourceKind::Manifests => format!("{}-{}", self.cluster.name, self.source.name),
        };
        let parts = [&*self.cluster.name, SourceId::kind_word(self.source.kind), &self.source.namespace, &self.source.name];
        ObjectName { namespace: Arc::clone(&self.cluster.namespace), name: Arc::from(hashed(&readable.to_lowercase(), &parts)) }
    }

    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        let source = match self.source.namespace.as_str() {
            "" => format!("{}.{}", SourceId::kind_word(self.source.kind), self.source.name),
            namespace => format!("{}.{namespace}.{}", SourceId::kind_word(self.source.kind), self.source.name),
        };
        BTreeMap::from([(CLUSTER_NAME_LABEL.to_owned(), label_value(&self.cluster.name)), (SOURCE_LABEL.to_owned(), label_value(&source))])
    }

    pub(super) fn spec(&self) -> DriftReportSpec {
        DriftReportSpec { cluster: self.cluster.name.to_string(), source: self.source.to_string() }
    }

    /// The key of a stored report; `None` where it is none of ours: its name must be the one that follows from its spec.
    pub(super) fn of_stored(object: &ObjectName, spec: &DriftReportSpec) -> Option<Self> {
        let source = SourceId::parse(&spec.source)?;
        let key = Self { cluster: ClusterName::new(&object.namespace, &spec.cluster), source };
        (key.object_name() == *object).then_some(key)
    }
}

/// The text itself where it is a short label value, else what fits of it and a hash of all.
fn label_value(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let alphanumeric_ends = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.ends_with(|c: char| c.is_ascii_alphanumeric());
    if text.len() <= MAX && alphanumeric_ends && text.chars().all(allowed) { text.to_owned() } else { hashed(text, &[text]) }
}

/// A readable beginning and a hash of `parts`; a label value, and a DNS label where `readable` is lower-case.
fn hashed(readable: &str, parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }
    // Fifteen hexadecimal digits are sixty bits.
    let hash = digest.finalize().iter().take(8).fold(0_u64, |hash, byte| hash << 8 | u64::from(*byte)) >> 4;
    let hash = format!("{hash:0HASH_DIGITS$x}");
    let word: String = readable.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(MAX - HASH_DIGITS - 1).collect();
    let word = word.trim_matches('-');
    if word.is_empty() { format!("x-{hash}") } else { format!("{word}-{hash}") }
}
