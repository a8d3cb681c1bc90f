//! Which version of Cluster API's `Cluster` the management cluster serves, if any.

use std::time::Duration;

use kube::{Client, core::ApiResource};
use tokio::time::sleep;

use crate::management::{self, Failure};

/// Group of `Cluster`.
pub(super) const GROUP: &str = "cluster.x-k8s.io";
/// Preferred first. Both carry what the hub reads; v1beta1 goes away with Cluster API 1.16.
const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
const PLURAL: &str = "clusters";

/// How often to look again while the kind is served: a newer version may have appeared.
const RECHECK_SERVED: Duration = Duration::from_mins(10);
/// How often to look again while it is not: Cluster API may have been installed.
const RECHECK_ABSENT: Duration = Duration::from_secs(15);

/// How `Cluster` is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// At this version.
    At(ApiResource),
    /// Not at all: clusters come from labelled Secrets only.
    No,
}

/// Asks the server. An error means that nothing is known, not that the kind is absent.
pub async fn discover(client: &Client) -> Result<Served, Failure> {
    for version in VERSIONS {
        let api_version = format!("{GROUP}/{version}");
        match management::call(client.list_api_group_resources(&api_version)).await {
            Ok(list) => {
                if list.resources.iter().any(|resource| resource.name == PLURAL && resource.kind == "Cluster") {
                    return Ok(Served::At(ApiResource {
                        group: GROUP.to_owned(),
                        version: version.to_owned(),
                        api_version,
                        kind: "Cluster".to_owned(),
                        plural: PLURAL.to_owned(),
                    }));
                }
            }
            Err(Failure::NotFound) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(Served::No)
}

/// Waits until `Cluster` is served otherwise than `now`, and says how.
pub async fn changed(client: &Client, now: &Served) -> Served {
    loop {
        sleep(if *now == Served::No { RECHECK_ABSENT } else { RECHECK_SERVED }).await;
        let served = confirmed(client, now).await;
        if served != *now {
            return served;
        }
    }
}

/// How `Cluster` is served, `now` where that cannot be told.
///
/// An absence must be seen three times, [`RECHECK_ABSENT`] apart: while a definition or an aggregated server is replaced discovery may
/// lack it for a moment, and the clusters must not look removed.
pub async fn confirmed(client: &Client, now: &Served) -> Served {
    for attempt in 1..=3 {
        match discover(client).await {
            Ok(Served::No) if *now != Served::No && attempt < 3 => sleep(RECHECK_ABSENT).await,
            Ok(served) => return served,
            Err(_) => break,
        }
    }
    now.clone()
}
