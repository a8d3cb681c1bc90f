//! What the API server was asked, by whom: its audit log, read back.

use std::{collections::HashMap, fmt, io, path::Path, time::Duration};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt},
    time::{Instant, sleep},
};

/// How long a read of the log waits for calls that arrived and did not end.
const SETTLE: Duration = Duration::from_secs(5);
/// How often it looks again.
const POLL: Duration = Duration::from_millis(5);
/// Groups whose objects are questions: their `create` changes nothing.
const REVIEWS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// A moment of the audit log, so that a test can count from there.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl Mark {
    pub(crate) const START: Self = Self(0);

    pub(crate) async fn at_end(log: &Path) -> Result<Self> {
        match tokio::fs::metadata(log).await {
            Ok(metadata) => Ok(Self(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::START),
            Err(error) => Err(error).context("looking at the audit log"),
        }
    }
}

/// One call, from its arrival on: a watch counts while it is still open.
#[derive(Clone, Debug)]
pub struct Call {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or the HTTP method outside resources.
    pub verb: String,
    /// Path and query.
    pub uri: String,
    /// The authenticated user.
    pub user: String,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The API group, empty for the core group and outside resources.
    pub group: String,
    /// The plural.
    pub resource: String,
    /// `status`, `scale`, … or empty.
    pub subresource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Empty for lists and most creations.
    pub name: String,
    /// The HTTP status, unless the call is still under way.
    pub code: Option<u16>,
    /// When it arrived.
    pub time: Timestamp,
    /// When it was answered in full, unless it is still under way. What it changed was visible by then.
    pub ended: Option<Timestamp>,
}

impl Call {
    /// Whether the call only tried.
    pub fn is_dry_run(&self) -> bool {
        self.uri.split_once('?').is_some_and(|(_, query)| query.split('&').any(|pair| pair == "dryRun=All"))
    }

    /// Whether the call asked for a change, in earnest or as a dry-run; access and token reviews do not.
    fn is_mutation(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
            && !REVIEWS.contains(&self.group.as_str())
    }
}

/// Calls in the order they arrived.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    calls: Vec<Call>,
}

impl Audit {
    /// Reads the calls that arrived after `mark`, once none of them but watches is under way.
    pub(crate) async fn read(log: &Path, mark: Mark) -> Result<Self> {
        let until = Instant::now() + SETTLE;
        loop {
            let (audit, pending) = Self::parse(&read_from(log, mark).await?)?;
            if !pending || Instant::now() >= until {
                return Ok(audit);
            }
            sleep(POLL).await;
        }
    }

    /// The calls of a piece of log, and whether one of them but a watch has not ended.
    fn parse(log: &str) -> Result<(Self, bool)> {
        let mut calls: Vec<Call> = Vec::new();
        let mut arrived: HashMap<String, usize> = HashMap::new();
        // A line without its end is being written.
        for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let line = Line::parse(line).context("a line of the audit log")?;
            let code = line.response_status.as_ref().map(|status| status.code);
            let ended = line.stage_timestamp.filter(|_| line.stage == Stage::ResponseComplete);
            if line.stage == Stage::RequestReceived {
                arrived.insert(line.audit_id.clone(), calls.len());
                calls.push(line.into_call());
            } else if let Some(call) = arrived.get(&line.audit_id).and_then(|index| calls.get_mut(*index)) {
                // The object's name and such may be known only at the end.
                *call = Call { code, ended, ..line.into_call() };
            }
        }
        let pending = calls.iter().any(|call| call.code.is_none() && call.verb != "watch");
        Ok((Self { calls }, pending))
    }

    /// The calls one by one.
    pub fn iter(&self) -> std::slice::Iter<'_, Call> {
        self.calls.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Those that `keep` likes.
    #[must_use]
    pub fn filter(&self, keep: impl Fn(&Call) -> bool) -> Self {
        Self { calls: self.calls.iter().filter(|call| keep(call)).cloned().collect() }
    }

    /// Those of one user.
    #[must_use]
    pub fn by_user(&self, user: &str) -> Self {
        self.filter(|call| call.user == user)
    }

    /// Those about one kind of object, named by its plural.
    #[must_use]
    pub fn of_resource(&self, resource: &str) -> Self {
        self.filter(|call| call.resource == resource)
    }

    /// Those inside one namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Self {
        self.filter(|call| call.namespace == namespace)
    }

    /// Gets, lists and watches of objects.
    #[must_use]
    pub fn reads(&self) -> Self {
        self.filter(|call| !call.resource.is_empty() && matches!(call.verb.as_str(), "get" | "list" | "watch"))
    }

    /// Gets of one object.
    #[must_use]
    pub fn gets(&self) -> Self {
        self.filter(|call| !call.resource.is_empty() && call.verb == "get")
    }

    /// Lists.
    #[must_use]
    pub fn lists(&self) -> Self {
        self.filter(|call| call.verb == "list")
    }

    /// Watches, open ones too.
    #[must_use]
    pub fn watches(&self) -> Self {
        self.filter(|call| call.verb == "watch")
    }

    /// Changes that were only tried.
    #[must_use]
    pub fn dry_runs(&self) -> Self {
        self.filter(|call| call.is_mutation() && call.is_dry_run())
    }

    /// Changes in earnest, refused ones too; access and token reviews are not changes.
    #[must_use]
    pub fn writes(&self) -> Self {
        self.filter(|call| call.is_mutation() && !call.is_dry_run())
    }
}

impl<'a> IntoIterator for &'a Audit {
    type Item = &'a Call;
    type IntoIter = std::slice::Iter<'a, Call>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One call a line, for assertions' messages.
impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for call in &self.calls {
            let code = call.code.map_or_else(|| "…".to_owned(), |code| code.to_string());
            writeln!(f, "{} {} {} {} -> {code}", call.time, call.user, call.verb, call.uri)?;
        }
        Ok(())
    }
}

/// How the API server begins a line.
const LINE_START: &str = "{\"kind\":\"Event\",";

#[derive(Deserialize, PartialEq, Eq)]
enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: Stage,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Option<Timestamp>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    subresource: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    code: u16,
}

impl Line {
    /// A server that was killed leaves half a line, and its successor goes on behind it.
    fn parse(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text).or_else(|error| match text.rfind(LINE_START) {
            Some(at) if at > 0 => serde_json::from_str(text.get(at..).unwrap_or_default()),
            _ => Err(error),
        })
    }

    fn into_call(self) -> Call {
        let object = self.object_ref.unwrap_or_default();
        Call {
            verb: self.verb,
            uri: self.request_uri,
            user: self.user.username,
            user_agent: self.user_agent,
            group: object.api_group,
            resource: object.resource,
            subresource: object.subresource,
            namespace: object.namespace,
            name: object.name,
            code: None,
            time: self.request_received_timestamp,
            ended: None,
        }
    }
}

async fn read_from(log: &Path, mark: Mark) -> Result<String> {
    let mut file = match File::open(log).await {
        Ok(file) => file,
        // Made with the first call.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error).context("opening the audit log"),
    };
    // A mark may have been taken while a line was being written; that line is older than the mark.
    file.seek(io::SeekFrom::Start(mark.0.saturating_sub(1))).await.context("reading the audit log")?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).await.context("reading the audit log")?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(if mark.0 == 0 { text } else { after_line(&text).to_owned() })
}

/// What follows the first line.
fn after_line(text: &str) -> &str {
    text.split_once('\n').map_or("", |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(id: &str, stage: &str, verb: &str, uri: &str, code: Option<u16>) -> String {
        let mut line = json!({
            "auditID": id, "stage": stage, "requestURI": uri, "verb": verb, "user": {"username": "ann"},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
        });
        if let Some(code) = code {
            line["responseStatus"] = json!({"code": code});
        }
        format!("{line}\n")
    }

    #[test]
    fn only_calls_that_arrived_here_count_and_only_they_are_waited_for() {
        let earlier = line("0", "ResponseComplete", "patch", "/x", Some(200));
        let watch = line("1", "RequestReceived", "watch", "/x?watch=true", None);
        let arrived = line("2", "RequestReceived", "patch", "/x/y?fieldManager=a&dryRun=All", None);
        let complete = line("2", "ResponseComplete", "patch", "/x/y?fieldManager=a&dryRun=All", Some(409));

        let (audit, pending) = Audit::parse(&[earlier.as_str(), &watch, &arrived].concat()).unwrap();
        assert!(pending);
        assert_eq!(audit.len(), 2);

        let (audit, pending) = Audit::parse(&[earlier.as_str(), &watch, &arrived, &complete, "{\"half"].concat()).unwrap();
        assert!(!pending);
        assert_eq!((audit.dry_runs().len(), audit.writes().len(), audit.watches().len()), (1, 0, 1));
        assert_eq!(audit.dry_runs().iter().next().unwrap().code, Some(409));
    }

    #[tokio::test]
    async fn a_mark_in_the_middle_of_a_line_is_after_it() {
        let log = std::env::temp_dir().join(format!("holdfast-audit-{}", std::process::id()));
        tokio::fs::write(&log, "one\ntwo\nthree\n").await.unwrap();
        for (mark, rest) in [(0, "one\ntwo\nthree\n"), (2, "two\nthree\n"), (4, "two\nthree\n"), (5, "three\n"), (14, "")] {
            assert_eq!(read_from(&log, Mark(mark)).await.unwrap(), rest, "{mark}");
        }
        tokio::fs::remove_file(&log).await.unwrap();
    }

    #[test]
    fn half_a_line_of_a_killed_server_is_no_line() {
        let event = "{\"kind\":\"Event\",\"auditID\":\"1\",\"stage\":\"RequestReceived\",\"requestURI\":\"/x\",\"verb\":\"get\",\
                     \"user\":{},\"requestReceivedTimestamp\":\"2026-01-01T00:00:00Z\"}\n";
        let killed = event.get(..40).unwrap().to_owned() + event;
        assert_eq!(Audit::parse(&killed).unwrap().0.len(), 1);
    }

    #[test]
    fn questions_are_not_writes() {
        let review = json!({
            "auditID": "1", "stage": "RequestReceived", "requestURI": "/r", "verb": "create", "user": {"username": "ann"},
            "objectRef": {"resource": "selfsubjectaccessreviews", "apiGroup": "authorization.k8s.io", "apiVersion": "v1"},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
        });
        let (audit, _) = Audit::parse(&format!("{review}\n")).unwrap();
        assert_eq!((audit.len(), audit.writes().len()), (1, 0));
    }
}
