//! What goes wrong, and with which requests.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

/// A request as far as rules look at it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The method.
    pub method: Method,
    /// The path, as sent.
    pub path: String,
    query: Vec<(String, String)>,
}

impl Asked {
    pub(super) fn of(head: &http::request::Parts) -> Self {
        let pairs = head.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let query = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { method: head.method.clone(), path: head.uri.path().to_owned(), query: query.collect() }
    }

    /// A query parameter as sent, percent-encoding included.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Whether this is a watch, also one that begins with a list.
    pub fn is_watch(&self) -> bool {
        self.query("watch") == Some("true")
    }

    /// Whether this is a list as the initial events of a watch.
    pub fn is_streaming_list(&self) -> bool {
        self.query("sendInitialEvents") == Some("true")
    }
}

type Condition = Arc<dyn Fn(&Asked) -> bool + Send + Sync>;
/// Makes another body of a body.
pub type RewriteBody = dyn Fn(&[u8]) -> Vec<u8> + Send + Sync;
/// Makes another line of a line.
pub type RewriteLine = dyn Fn(&str) -> String + Send + Sync;

/// Which requests a rule is about: those for which everything said holds.
#[derive(Clone, Default)]
pub struct Match {
    conditions: Vec<Condition>,
    limit: Option<u64>,
    open_only: bool,
}

impl Match {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests for exactly this path.
    pub fn path(path: &str) -> Self {
        let path = path.to_owned();
        Self::any().when(move |asked| asked.path == path)
    }

    /// Requests for paths that begin like this.
    pub fn prefix(prefix: &str) -> Self {
        let prefix = prefix.to_owned();
        Self::any().when(move |asked| asked.path.starts_with(&prefix))
    }

    /// Watches of a collection, also those that begin with a list.
    pub fn watches(path: &str) -> Self {
        Self::path(path).when(Asked::is_watch)
    }

    /// Lists of a collection in both forms: paged, and as the initial events of a watch.
    pub fn lists(path: &str) -> Self {
        Self::path(path).method(Method::GET).when(|asked| !asked.is_watch() || asked.is_streaming_list())
    }

    /// Only with this method.
    #[must_use]
    pub fn method(self, method: Method) -> Self {
        self.when(move |asked| asked.method == method)
    }

    /// Only with this query parameter; `value` as sent, percent-encoding included.
    #[must_use]
    pub fn query(self, name: &str, value: &str) -> Self {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.when(move |asked| asked.query(&name) == Some(value.as_str()))
    }

    /// Only when `condition` holds.
    #[must_use]
    pub fn when(mut self, condition: impl Fn(&Asked) -> bool + Send + Sync + 'static) -> Self {
        self.conditions.push(Arc::new(condition));
        self
    }

    /// Only the first `times` of them.
    #[must_use]
    pub fn first(self, times: u64) -> Self {
        Self { limit: Some(times), ..self }
    }

    /// Only answers that are under way when the rule is made: whoever asks again gets through.
    #[must_use]
    pub fn already_open(self) -> Self {
        Self { open_only: true, ..self }
    }

    /// Whether a request is meant, whatever [`Match::first`] and [`Match::already_open`] say.
    pub fn is_met_by(&self, asked: &Asked) -> bool {
        self.conditions.iter().all(|condition| condition(asked))
    }

    pub(super) fn has_room_after(&self, hits: u64) -> bool {
        self.limit.is_none_or(|limit| hits < limit)
    }

    pub(super) fn is_open_only(&self) -> bool {
        self.open_only
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Match").field("limit", &self.limit).field("open_only", &self.open_only).finish_non_exhaustive()
    }
}

/// What happens to a request or its answer. Those about bodies also strike answers that are under way.
#[derive(Clone)]
pub enum Fault {
    /// Nothing is forwarded and no answer ever comes.
    Hang,
    /// The API server carries out the request, and nobody ever hears of it.
    Swallow,
    /// Nothing is forwarded; this is the answer.
    Answer(Reply),
    /// The exchange ends without an answer, or in the middle of it; the connection and its other streams stay.
    Break,
    /// The connection is reset, with everything on it.
    Reset,
    /// The body ends early.
    Cut(Cut),
    /// The body arrives this slowly.
    Drip {
        /// At least 1.
        bytes_per_second: u32,
    },
    /// The body stays open and nothing more of it arrives until the rule goes.
    Stall,
    /// A line is put between two others, or before the first, once in each answer.
    Inject {
        /// Without its line end.
        line: String,
        /// The body ends after it.
        last: bool,
    },
    /// The body ends here as if it were complete.
    End,
    /// The whole body is replaced. Not for watches, which have no whole.
    Rewrite(Arc<RewriteBody>),
    /// Each line of the body is replaced; lines come without their ends.
    RewriteLines(Arc<RewriteLine>),
}

impl Fault {
    /// An answer with a status code and, as API servers send it, a `Status` object.
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        Self::Answer(Reply::status(code, reason, message))
    }

    /// What a server does that compacted the version a watch resumes from: HTTP 200, an ERROR event, the end.
    pub fn expired_in_stream() -> Self {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "too old resource version: 1 (2)", "reason": "Expired", "code": 410,
        });
        Self::Inject { line: json!({"type": "ERROR", "object": status}).to_string(), last: true }
    }

    /// Replaces a JSON body. What is no JSON stays.
    pub fn rewrite_json(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self::Rewrite(Arc::new(move |body| match serde_json::from_slice::<Value>(body) {
            Ok(mut value) => {
                change(&mut value);
                value.to_string().into_bytes()
            }
            Err(_) => body.to_vec(),
        }))
    }

    /// Replaces each line of a body.
    pub fn rewrite_lines(change: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self::RewriteLines(Arc::new(change))
    }

    /// Whether it takes effect before or instead of the answer's first byte.
    pub(super) fn is_about_heads(&self) -> bool {
        matches!(self, Self::Hang | Self::Swallow | Self::Answer(_) | Self::Break | Self::Reset | Self::Rewrite(_))
    }

    /// Whether it can take effect while an answer is under way.
    pub(super) fn is_about_bodies(&self) -> bool {
        !matches!(self, Self::Hang | Self::Swallow | Self::Answer(_) | Self::Rewrite(_))
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Hang => "Hang",
            Self::Swallow => "Swallow",
            Self::Answer(reply) => return f.debug_tuple("Answer").field(&reply.code).finish(),
            Self::Break => "Break",
            Self::Reset => "Reset",
            Self::Cut(cut) => return f.debug_tuple("Cut").field(cut).finish(),
            Self::Drip { .. } => "Drip",
            Self::Stall => "Stall",
            Self::Inject { .. } => "Inject",
            Self::End => "End",
            Self::Rewrite(_) => "Rewrite",
            Self::RewriteLines(_) => "RewriteLines",
        };
        f.write_str(name)
    }
}

/// Where a body ends early, counted from where the rule takes hold.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub(super) at: CutAt,
    pub(super) clean: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum CutAt {
    Bytes(usize),
    Line(usize),
}

impl Cut {
    /// After this many bytes.
    pub fn after_bytes(bytes: usize) -> Self {
        Self { at: CutAt::Bytes(bytes), clean: false }
    }

    /// In the middle of the line with this number, from 0.
    pub fn in_line(number: usize) -> Self {
        Self { at: CutAt::Line(number), clean: false }
    }

    /// As if the body were complete, instead of by breaking the exchange.
    #[must_use]
    pub fn cleanly(self) -> Self {
        Self { clean: true, ..self }
    }
}

/// A ready-made answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) code: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl Reply {
    /// A `Status` object, as API servers answer failures.
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code,
        });
        Self::json(code, &status)
    }

    /// Any JSON.
    pub fn json(code: u16, body: &Value) -> Self {
        Self::raw(code, "application/json", body.to_string())
    }

    /// Plain text, as proxies and overload protection answer.
    pub fn text(code: u16, body: &str) -> Self {
        Self::raw(code, "text/plain; charset=utf-8", body.to_owned())
    }

    /// What API servers say to a list that goes on from a compacted version.
    pub fn expired_continue() -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result.";
        Self::status(StatusCode::GONE.as_u16(), "Expired", message)
    }

    fn raw(code: u16, content_type: &str, body: String) -> Self {
        Self { code, headers: vec![("content-type".to_owned(), content_type.to_owned())], body: Bytes::from(body) }
    }

    /// With a further header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With `Retry-After`.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        self.header("retry-after", &seconds.to_string())
    }
}

/// How the way to the server is as a whole, for open connections and new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// As usual.
    Open,
    /// Nobody listens; open connections are reset.
    Refused,
    /// Connections are accepted and stay, and nothing ever comes back.
    Silent,
    /// Connections are accepted and reset, open ones too.
    Reset,
    /// Everything comes back this slowly, TLS handshakes too.
    Drip {
        /// At least 1.
        bytes_per_second: u32,
    },
}

/// How much at a time makes a rate, and the pause after it. `rate` in bytes a second, at least 1.
pub(super) fn dose(rate: u32) -> (usize, std::time::Duration) {
    let rate = rate.max(1);
    let bytes = (rate / 10).max(1);
    (bytes as usize, std::time::Duration::from_secs(1) * bytes / rate)
}
