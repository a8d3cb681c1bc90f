//! How each state of a cluster shows: the conditions of its report, and its count in the metrics.

use anyhow::ensure;

use crate::{
    fixture::{cluster_report, metric},
    support::{World, condition, reason},
};

/// Status and reason of a condition. `*` fits all.
type Shown = (&'static str, &'static str);

/// One state.
pub struct State {
    /// As the tests call it.
    pub name: &'static str,
    pub ready: Shown,
    pub in_sync: Shown,
    pub reachable: Shown,
    pub fresh: &'static str,
    /// The label of `holdfast_clusters`.
    pub metric: &'static str,
}

const fn state(name: &'static str, ready: Shown, in_sync: Shown, reachable: Shown, fresh: &'static str, metric: &'static str) -> State {
    State { name, ready, in_sync, reachable, fresh, metric }
}

/// Every state a user can see.
#[rustfmt::skip]
pub const STATES: &[State] = &[
    state("connecting", ("False", "Connecting"), ("Unknown", "Stale"), ("Unknown", "Connecting"), "False", "Connecting"),
    state("connected", ("True", "Connected"), ("True", "AsDeclared"), ("True", "Connected"), "True", "Connected"),
    state("drifted", ("True", "Connected"), ("False", "Drifted"), ("True", "Connected"), "True", "Connected"),
    state("paused", ("True", "Connected"), ("True", "ClusterPaused"), ("True", "Connected"), "True", "Paused"),
    state("not initialised", ("False", "ClusterNotInitialised"), ("Unknown", "ClusterNotInitialised"), ("Unknown", "ClusterNotInitialised"), "False", "Waiting"),
    state("deleting", ("False", "ClusterDeleting"), ("Unknown", "ClusterDeleting"), ("Unknown", "ClusterDeleting"), "False", "Waiting"),
    state("older name", ("True", "ClusterShared"), ("*", "*"), ("True", "Connected"), "True", "Connected"),
    state("younger name", ("False", "ClusterShared"), ("*", "*"), ("True", "Connected"), "True", "Connected"),
    state("no Secret yet", ("False", "KubeconfigMissing"), ("Unknown", "KubeconfigRejected"), ("Unknown", "KubeconfigMissing"), "False", "Rejected"),
    state("Secret gone", ("True", "KubeconfigMissing"), ("True", "AsDeclared"), ("True", "Connected"), "True", "Connected"),
    state("bad Secret", ("False", "NotYaml"), ("Unknown", "KubeconfigRejected"), ("Unknown", "NotYaml"), "False", "Rejected"),
    state("new Secret leads nowhere", ("False", "KubeconfigUnproven"), ("*", "*"), ("True", "Connected"), "True", "Connected"),
    state("unreachable", ("False", "Unreachable"), ("Unknown", "ClusterUnreachable"), ("False", "Unreachable"), "False", "Unreachable"),
    state("closed at once", ("False", "Handshake"), ("Unknown", "ClusterUnreachable"), ("False", "Handshake"), "False", "Unreachable"),
    state("silent", ("False", "Timeout"), ("Unknown", "ClusterUnreachable"), ("False", "Timeout"), "False", "Unreachable"),
    state("credentials refused", ("False", "Unauthorized"), ("Unknown", "ClusterUnreachable"), ("False", "Unauthorized"), "False", "Unreachable"),
    state("client certificate expired", ("False", "ClientCertificateExpired"), ("Unknown", "ClusterUnreachable"), ("False", "ClientCertificateExpired"), "False", "Unreachable"),
    state("server not trusted", ("False", "UnknownAuthority"), ("Unknown", "ClusterUnreachable"), ("False", "UnknownAuthority"), "False", "Unreachable"),
    state("records forbidden", ("True", "Connected"), ("Unknown", "Forbidden"), ("True", "Connected"), "*", "Connecting"),
];

/// Waits until a cluster shows a state of the table, and answers with its report.
pub async fn wait_state(world: &World, cluster: &str, name: &str) -> serde_json::Value {
    let state = STATES.iter().find(|state| state.name == name).unwrap_or_else(|| panic!("no state {name}"));
    let rows = [("Ready", state.ready), ("InSync", state.in_sync), ("Reachable", state.reachable), ("Fresh", (state.fresh, "*"))];
    world
        .wait(&format!("{cluster}: {name}"), async || {
            let report = cluster_report(world, cluster).await?;
            let status = &report["status"];
            for (kind, (truth, word)) in rows {
                let shown = (condition(status, kind), reason(status, kind));
                let fits = (truth == "*" || truth == shown.0) && (word == "*" || word == shown.1);
                ensure!(fits, "{kind} is {shown:?}, not {:?}: {}", (truth, word), status["conditions"]);
            }
            ensure!(metric(world, &format!("holdfast_clusters{{state=\"{}\"}}", state.metric)).await? > 0, "no {}", state.metric);
            Ok(())
        })
        .await;
    cluster_report(world, cluster).await.unwrap()
}
