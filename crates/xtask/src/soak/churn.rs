//! What happens to the clusters: edits and deletions all the time, and once a round an upgrade, other credentials, a server that hangs,
//! and a cluster that leaves and comes back.

use std::path::Path;

use anyhow::{Context, Result};
use holdfast_testkit::{
    ControlPlane, Helm, Target, Writer,
    management::{CapiVersion, HUB_USER},
};
use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

use crate::fleet::{Fleet, NAMESPACE};

/// The release on every cluster.
pub const RELEASE: &str = "bulk";
/// Its namespace.
pub const SHOP: &str = "shop";
/// How many of its objects are Deployments.
pub const DEPLOYMENTS: u32 = 20;
/// Keys of its ConfigMaps that are edited.
const KEYS: u32 = 4;
/// Shortest time between two edits of one cluster.
const BEAT: Duration = Duration::from_millis(250);
/// A path may be put back this often in [`FLOOR_WINDOW`], one time less than makes it contested.
const FLOOR: u32 = 9;
/// See [`FLOOR`].
const FLOOR_WINDOW: Duration = Duration::from_mins(30);
/// In one of so many turns objects are deleted: each less than five times a day, or that it is there would be contested.
const DELETING_TURN: u32 = 432;
/// How long a hanging server hangs: calls wait …
const HANG: Duration = Duration::from_secs(5);
/// … and each third time a ping goes unanswered (20 s until it is sent, 10 s for its answer), so that every connection breaks.
const LONG_HANG: Duration = Duration::from_secs(33);
/// What the hub needs at least to see and to say what happened.
const SETTLE: Duration = Duration::from_secs(3);

/// Somebody who does all this.
pub struct Churn<'a> {
    fleet: &'a Fleet,
    chart: &'a Path,
    maps: u32,
    beat: Duration,
    sites: Vec<Site<'a>>,
    edits: u32,
}

struct Site<'a> {
    plane: &'a ControlPlane,
    helm: Helm,
    editor: Writer,
}

impl<'a> Churn<'a> {
    /// Makes accounts and knows the releases.
    pub async fn prepare(fleet: &'a Fleet, chart: &'a Path, objects: u32) -> Result<Self> {
        let maps = objects - DEPLOYMENTS;
        let mut sites = Vec::new();
        for (helm, plane) in Helm::ALL.into_iter().cycle().zip(&fleet.workloads) {
            for object in account() {
                plane.apply_yaml("platform", &object.to_string()).await?;
            }
            sites.push(Site { plane, helm, editor: plane.writer("kubectl-edit")? });
        }
        let beat = BEAT.max(FLOOR_WINDOW / (maps * KEYS * FLOOR));
        Ok(Self { fleet, chart, maps, beat, sites, edits: 0 })
    }

    /// One round: what happens once, each on another cluster than in the round before, and edits until `end`.
    pub async fn round(&mut self, round: u32, end: Instant) -> Result<()> {
        let site = usize::try_from(round)? % self.sites.len();
        let pause = (end - Instant::now()) / 8;
        self.upgrade(site, round).await?;
        self.edit_for(pause).await?;
        self.rotate(site, round).await?;
        self.edit_for(pause).await?;
        self.hang(site, if round % 3 == 1 { LONG_HANG } else { HANG }).await?;
        self.edit_for(pause).await?;
        self.leave_and_return(site).await?;
        self.edit_for(end.saturating_duration_since(Instant::now())).await
    }

    /// Waits until every release is as declared.
    pub async fn calm(&self) -> Result<()> {
        sleep(SETTLE).await;
        for site in &self.sites {
            self.fleet.in_sync(site.plane.name(), RELEASE).await?;
        }
        Ok(())
    }

    /// Edits and deletions on every cluster. No value comes twice, and no path so often that it would be held as contested.
    async fn edit_for(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let (number, maps) = (self.edits, self.maps);
            self.edits += 1;
            for site in &self.sites {
                site.edit(number, maps).await.with_context(|| format!("edit {number} on {}", site.plane.name()))?;
            }
            sleep(self.beat).await;
        }
        Ok(())
    }

    /// Every object changes with each upgrade. Edits that were not put back yet would be conflicts for Helm.
    async fn upgrade(&self, site: usize, round: u32) -> Result<()> {
        self.calm().await?;
        let Some(Site { plane, helm, .. }) = self.sites.get(site) else { return Ok(()) };
        let keys = KEYS + 1 + round % 2;
        let values = format!("count={},deployments={DEPLOYMENTS},keys={keys}", self.maps);
        helm.upgrade(plane, RELEASE, SHOP, self.chart, &["--set", &values]).await?;
        Ok(())
    }

    /// A new client certificate, or a token; two tokens in a row are a change that leaves connections alone.
    async fn rotate(&self, site: usize, round: u32) -> Result<()> {
        let Some(Site { plane, .. }) = self.sites.get(site) else { return Ok(()) };
        let texts = if round.is_multiple_of(2) {
            vec![plane.kubeconfig(HUB_USER, &["system:masters"])?]
        } else {
            vec![
                plane.service_account("default", HUB_USER).await?.kubeconfig(),
                plane.service_account("default", HUB_USER).await?.kubeconfig(),
            ]
        };
        for text in texts {
            self.fleet.management.capi_kubeconfig(NAMESPACE, plane.name(), &text).await?;
            sleep(SETTLE).await;
        }
        Ok(())
    }

    async fn hang(&self, site: usize, time: Duration) -> Result<()> {
        let Some(Site { plane, .. }) = self.sites.get(site) else { return Ok(()) };
        plane.freeze()?;
        sleep(time).await;
        plane.thaw()
    }

    async fn leave_and_return(&self, site: usize) -> Result<()> {
        let Some(Site { plane, .. }) = self.sites.get(site) else { return Ok(()) };
        let platform = self.fleet.management.writer("platform")?;
        platform.delete(&CapiVersion::V1Beta2.target(NAMESPACE, plane.name())).await?;
        platform.delete(&Target::secret(NAMESPACE, &format!("{}-kubeconfig", plane.name()))).await?;
        sleep(SETTLE).await;
        self.fleet.management.capi_cluster(NAMESPACE, plane.name(), plane, CapiVersion::V1Beta2, true, &[]).await?;
        Ok(())
    }
}

impl Site<'_> {
    async fn edit(&self, number: u32, maps: u32) -> Result<()> {
        let map = Target::configmap(SHOP, &format!("{RELEASE}-{}", number % maps));
        if number % 10 == 9 && (number / maps).is_multiple_of(DELETING_TURN) {
            // It may be gone from the last time, if the cluster was away meanwhile.
            if self.editor.find(&map).await?.is_some() {
                self.editor.delete(&map).await?;
            }
            return Ok(());
        }
        if number % 10 == 4 {
            let deployment = Target::deployment(SHOP, &format!("{RELEASE}-{}", number / 10 % DEPLOYMENTS));
            // Somebody else's field: news that means nothing.
            let noise = json!({"metadata": {"annotations": {"soak": number.to_string()}}});
            self.editor.merge_patch(&deployment, &noise).await?;
        }
        if self.editor.find(&map).await?.is_some() {
            let key = format!("key-{}", number / maps % KEYS);
            self.editor.merge_patch(&map, &json!({"data": {key: format!("drifted {number}")}})).await?;
        }
        Ok(())
    }
}

/// An account that may do everything, for tokens.
fn account() -> [serde_json::Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": HUB_USER, "namespace": "default"}}),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "soak"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": HUB_USER, "namespace": "default"}],
        }),
    ]
}
