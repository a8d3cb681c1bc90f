//! Calls to the management cluster: a client with deadlines and without hidden retries, and failures as words.

pub(crate) mod slim;

use std::{future::Future, time::Duration};

use holdfast_fleet::term::Term;
use http::Request;
use kube::{
    Client, Config, Error,
    client::{Body, ClientBuilder},
    runtime::watcher,
};
use tokio::time::timeout;
use tower::{BoxError, filter::FilterLayer, util::MapFutureLayer};

/// How long a server may take until the first byte of an answer. Watches send theirs at once, lists when they are complete.
const HEADERS: Duration = Duration::from_secs(30);
/// How long a whole call may take.
pub(crate) const CALL: Duration = Duration::from_secs(10);

/// Why a call to the management cluster failed. Never carries what the server said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a call to the management cluster failed: {}", self.as_str())]
pub enum Failure {
    /// No answer in time.
    Timeout,
    /// No connection.
    Unreachable,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404: the object or the kind.
    NotFound,
    /// 409 about a resource version or UID.
    Conflict,
    /// 409 about a name that is taken.
    AlreadyExists,
    /// 410: the version to watch from is too old.
    Expired,
    /// 422.
    Invalid,
    /// 429 or 503.
    Throttled,
    /// Another error answer.
    Server,
    /// An answer that cannot be read.
    BadAnswer,
    /// Not sent: this hub does not lead now.
    Withheld,
}

impl Failure {
    /// One word for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "Timeout",
            Self::Unreachable => "Unreachable",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::Conflict => "Conflict",
            Self::AlreadyExists => "AlreadyExists",
            Self::Expired => "Expired",
            Self::Invalid => "Invalid",
            Self::Throttled => "Throttled",
            Self::Server => "Server",
            Self::BadAnswer => "BadAnswer",
            Self::Withheld => "Withheld",
        }
    }

    /// The failure of a call.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Api(status) if status.is_already_exists() => Self::AlreadyExists,
            Error::Api(status) => Self::of_code(status.code),
            Error::Service(error) => error.downcast_ref::<Self>().copied().unwrap_or(Self::Unreachable),
            Error::HyperError(_) => Self::Unreachable,
            _ => Self::BadAnswer,
        }
    }

    /// The failure of a watch.
    pub fn of_watch(error: &watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
                Self::of(error)
            }
            watcher::Error::WatchError(status) => Self::of_code(status.code),
            watcher::Error::NoResourceVersion => Self::BadAnswer,
        }
    }

    const fn of_code(code: u16) -> Self {
        match code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            409 => Self::Conflict,
            410 => Self::Expired,
            422 => Self::Invalid,
            429 | 503 => Self::Throttled,
            _ => Self::Server,
        }
    }
}

/// A client for the management cluster. It never retries by itself, and gives up on a server that does not answer.
pub fn client(config: Config) -> Result<Client, Error> {
    let deadline = MapFutureLayer::new(answer_in_time);
    Ok(ClientBuilder::try_from(impatient(config))?.with_layer(&deadline).build())
}

/// The same for everything but the Lease: what would change something is sent during the term, and otherwise fails with
/// [`Failure::Withheld`].
pub fn client_during(config: Config, term: Term) -> Result<Client, Error> {
    let deadline = MapFutureLayer::new(answer_in_time);
    let in_term =
        FilterLayer::new(
            move |request: Request<Body>| {
                if request.method().is_safe() || term.holds() { Ok(request) } else { Err(BoxError::from(Failure::Withheld)) }
            },
        );
    Ok(ClientBuilder::try_from(impatient(config))?.with_layer(&in_term).with_layer(&deadline).build())
}

fn impatient(mut config: Config) -> Config {
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(10));
    config
}

async fn answer_in_time<T>(answer: impl Future<Output = Result<T, BoxError>>) -> Result<T, BoxError> {
    timeout(HEADERS, answer).await.unwrap_or_else(|_| Err(BoxError::from(Failure::Timeout)))
}

/// Makes one call with a deadline.
pub async fn call<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    match timeout(CALL, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Failure::of(&error)),
        Err(_) => Err(Failure::Timeout),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_never_answers_is_given_up() {
        let silent = || std::future::pending::<Result<(), Error>>();
        assert_eq!(call(silent()).await, Err(Failure::Timeout));
        let error = answer_in_time(std::future::pending::<Result<(), BoxError>>()).await.unwrap_err();
        assert_eq!(error.downcast_ref::<Failure>(), Some(&Failure::Timeout));
        assert_eq!(Failure::of(&Error::Service(error)), Failure::Timeout);
    }

    #[tokio::test]
    async fn outside_its_term_a_hub_reads_and_writes_nothing() {
        use k8s_openapi::api::core::v1::ConfigMap;
        use kube::{
            Api,
            api::{DeleteParams, Patch, PatchParams, PostParams},
        };

        // Nobody listens there: what is sent cannot be delivered.
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        let term = Term::bounded(std::sync::Arc::new(holdfast_fleet::clock::SystemClock));
        let maps: Api<ConfigMap> = Api::namespaced(client_during(config, term.clone()).unwrap(), "t");
        let map = ConfigMap::default();
        let writes = async || {
            let patch = Patch::Merge(serde_json::json!({}));
            [
                call(maps.create(&PostParams::default(), &map)).await.map(drop),
                call(maps.patch("a", &PatchParams::default(), &patch)).await.map(drop),
                call(maps.delete("a", &DeleteParams::default())).await.map(drop),
            ]
        };
        assert_eq!(writes().await, [Err(Failure::Withheld); 3]);
        assert_eq!(call(maps.get("a")).await.map(drop), Err(Failure::Unreachable), "a read is sent");
        term.extend(Term::since(&holdfast_fleet::clock::SystemClock), Duration::from_mins(1));
        assert_eq!(writes().await, [Err(Failure::Unreachable); 3]);
    }

    #[test]
    fn what_the_server_says_is_reduced_to_a_word() {
        let table = [
            (401, "Unauthorized", Failure::Unauthorized),
            (403, "Forbidden", Failure::Forbidden),
            (404, "NotFound", Failure::NotFound),
            (409, "Conflict", Failure::Conflict),
            (409, "AlreadyExists", Failure::AlreadyExists),
            (410, "Expired", Failure::Expired),
            (422, "Invalid", Failure::Invalid),
            (429, "TooManyRequests", Failure::Throttled),
            (500, "InternalError", Failure::Server),
            (503, "ServiceUnavailable", Failure::Throttled),
        ];
        for (code, reason, expected) in table {
            let failure = Failure::of(&Error::Api(Status::failure("CANARY", reason).with_code(code).boxed()));
            assert_eq!(failure, expected);
            assert!(!failure.to_string().contains("CANARY"));
        }
    }
}
