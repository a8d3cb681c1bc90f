//! One release record: the bytes of a `release` key, decoded.

use std::{fmt, io::Read};

use flate2::bufread::GzDecoder;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use thiserror::Error;

use crate::{
    base64_text,
    history::{RecordMeta, Status},
    limits::Limits,
};

/// First bytes of a compressed record. Helm takes anything else for plain JSON, as very old versions stored it.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];

/// What Holdfast needs of a release record.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// Release name.
    pub name: String,
    /// Namespace of the release; objects without a namespace of their own go there.
    pub namespace: String,
    /// Revision, from 1.
    pub version: u64,
    /// Status in the body. The Secret's label says the same unless somebody edited one of them.
    pub status: Status,
    /// When the first revision was installed, by the clock of whoever ran Helm.
    pub first_deployed: Option<Timestamp>,
    /// When Helm began this revision, by the clock of whoever ran it: before its objects were written.
    pub last_deployed: Option<Timestamp>,
    /// When the release was uninstalled.
    pub deleted: Option<Timestamp>,
    /// The chart, where the record names one.
    pub chart: Option<Chart>,
    /// How Helm wrote this revision's objects.
    pub apply_method: ApplyMethod,
    /// The rendered manifest as stored, hooks left out. May hold Secrets: never log it.
    pub manifest: String,
}

/// A chart's name and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Chart {
    /// Chart name.
    pub name: String,
    /// Chart version.
    pub version: String,
}

/// How Helm wrote the objects of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyMethod {
    /// Computed patches: Helm 3 always, Helm 4 on releases that began so.
    ClientSide,
    /// Server-side apply: Helm 4's default for new releases.
    ServerSide,
}

/// Why a record cannot be used. No text of this type carries any of the record's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum RecordError {
    /// The Secret has no `release` key, or an empty one.
    #[error("the record has no data")]
    NoData,
    /// The record, or what it expands to, is larger than the limits allow.
    #[error("the record is too large")]
    TooLarge,
    /// The data is not base64 text: encoded once instead of twice, for example.
    #[error("the record is not base64")]
    BadBase64,
    /// The compressed data is damaged.
    #[error("the record's compressed data is damaged")]
    BadGzip,
    /// The data ends early.
    #[error("the record is truncated")]
    Truncated,
    /// Something follows the compressed data. Helm writes one gzip member and nothing else.
    #[error("the record has data after its end")]
    TrailingData,
    /// The body is not the JSON of a release.
    #[error("the record is not the JSON of a release")]
    BadJson,
    /// The body has neither a manifest nor hooks.
    #[error("the record has no manifest")]
    NoManifest,
    /// The body does not say name, namespace and revision.
    #[error("the record does not say which release it is")]
    NoIdentity,
    /// The status is none that Helm writes.
    #[error("the record's status is not one of Helm's")]
    BadStatus,
    /// Body and Secret name different releases or revisions.
    #[error("the record and its Secret name different releases")]
    IdentityMismatch,
    /// Body and label disagree about the status: edited by hand, or read between two updates.
    #[error("the record and its label disagree about the status")]
    StatusMismatch,
}

impl RecordError {
    /// Stable word for conditions and metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoData => "NoData",
            Self::TooLarge => "TooLarge",
            Self::BadBase64 => "BadBase64",
            Self::BadGzip => "BadGzip",
            Self::Truncated => "Truncated",
            Self::TrailingData => "TrailingData",
            Self::BadJson => "BadJson",
            Self::NoManifest => "NoManifest",
            Self::NoIdentity => "NoIdentity",
            Self::BadStatus => "BadStatus",
            Self::IdentityMismatch => "IdentityMismatch",
            Self::StatusMismatch => "StatusMismatch",
        }
    }
}

/// Decodes the value of a record's `release` key, the API's own base64 of a Secret already removed.
///
/// The rest is base64 text of gzip of JSON, or of plain JSON. Only the fields of [`Record`] are kept; chart templates,
/// values and hooks are skipped while reading.
pub fn decode(data: &[u8], limits: &Limits) -> Result<Record, RecordError> {
    if data.is_empty() {
        return Err(RecordError::NoData);
    }
    if data.len() > limits.encoded_bytes {
        return Err(RecordError::TooLarge);
    }
    let stored = base64_text::decode(data).ok_or(RecordError::BadBase64)?;
    if stored.starts_with(&GZIP_MAGIC) { parse(&inflate(&stored, limits)?) } else { parse(&stored) }
}

impl Record {
    /// Checks that the body is what the Secret's labels promised. Without this check a forged body could send objects
    /// to a namespace its writer has no access to.
    pub fn confirm(&self, meta: &RecordMeta) -> Result<(), RecordError> {
        if self.name != meta.name || self.namespace != meta.namespace || self.version != meta.version {
            return Err(RecordError::IdentityMismatch);
        }
        if self.status == meta.status { Ok(()) } else { Err(RecordError::StatusMismatch) }
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("name", &self.name)
            .field("namespace", &self.namespace)
            .field("version", &self.version)
            .field("status", &self.status)
            .field("apply_method", &self.apply_method)
            .field("manifest_bytes", &self.manifest.len())
            .finish_non_exhaustive()
    }
}

fn inflate(compressed: &[u8], limits: &Limits) -> Result<Vec<u8>, RecordError> {
    let mut decoder = GzDecoder::new(compressed);
    let mut json = Vec::new();
    let cap = u64::try_from(limits.json_bytes).unwrap_or(u64::MAX);
    // One byte more than allowed tells "exactly full" from "too large".
    match (&mut decoder).take(cap.saturating_add(1)).read_to_end(&mut json) {
        Ok(_) if json.len() > limits.json_bytes => Err(RecordError::TooLarge),
        Ok(_) if decoder.get_ref().is_empty() => Ok(json),
        Ok(_) => Err(RecordError::TrailingData),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(RecordError::Truncated),
        Err(_) => Err(RecordError::BadGzip),
    }
}

fn parse(json: &[u8]) -> Result<Record, RecordError> {
    let body: Body =
        serde_json::from_slice(json).map_err(|error| if error.is_eof() { RecordError::Truncated } else { RecordError::BadJson })?;
    if body.name.is_empty() || body.namespace.is_empty() || body.version == 0 {
        return Err(RecordError::NoIdentity);
    }
    let info = body.info.unwrap_or_default();
    // Helm leaves an empty manifest out of the JSON, so a release of nothing but hooks has none.
    let manifest = match body.manifest {
        Some(manifest) => manifest,
        None if body.hooks.is_some_and(|hooks| !hooks.is_empty()) => String::new(),
        None => return Err(RecordError::NoManifest),
    };
    Ok(Record {
        status: Status::parse(&info.status).ok_or(RecordError::BadStatus)?,
        name: body.name,
        namespace: body.namespace,
        version: body.version,
        first_deployed: info.first_deployed,
        last_deployed: info.last_deployed,
        deleted: info.deleted,
        chart: body.chart.and_then(|chart| chart.metadata),
        apply_method: if body.apply_method.as_deref() == Some("ssa") { ApplyMethod::ServerSide } else { ApplyMethod::ClientSide },
        manifest,
    })
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    version: u64,
    info: Option<Info>,
    chart: Option<ChartBody>,
    manifest: Option<String>,
    hooks: Option<Vec<IgnoredAny>>,
    apply_method: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Info {
    status: String,
    #[serde(deserialize_with = "time")]
    first_deployed: Option<Timestamp>,
    #[serde(deserialize_with = "time")]
    last_deployed: Option<Timestamp>,
    #[serde(deserialize_with = "time")]
    deleted: Option<Timestamp>,
}

#[derive(Deserialize)]
struct ChartBody {
    metadata: Option<Chart>,
}

/// Helm 3 writes a time that is not set as an empty text.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| serde::de::Error::custom("not a time")),
    }
}
