//! Clusters that fail cost the others nothing (case D20), and when most fail at once nobody storms the management cluster.

use std::{collections::BTreeSet, time::Duration};

use anyhow::ensure;
use futures::future::join_all;
use holdfast_testkit::{Link, Match, eventually};

use crate::{
    fixture::metric,
    fleet::{Failing, Member},
    scene::AFTER_A_BACKOFF,
    support::{World, planes},
};

/// Each way to fail, and the words for it.
const FAILING: [(&str, Failing, &[&str]); 6] = [
    ("hangs", Failing::Way(Link::Silent), &["Timeout", "Unreachable"]),
    ("resets", Failing::Way(Link::Reset), &["Unreachable"]),
    ("drips", Failing::Way(Link::Drip { bytes_per_second: 1 }), &["Timeout", "Unreachable"]),
    ("refuses", Failing::Way(Link::Refused), &["Unreachable"]),
    ("throttles", Failing::Throttles, &["Throttled"]),
    ("errs", Failing::Errs, &["Server"]),
];
/// As many as fail: half of the clusters are not most of them.
const HEALTHY: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

async fn fleet(world: &World, names: impl IntoIterator<Item = &str>) -> Vec<Member> {
    join_all(names.into_iter().map(|name| Member::add(world, name))).await
}

pub async fn clusters_that_fail_cost_the_others_nothing_and_come_back_by_themselves() {
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, "isolation").await;
    let healthy = fleet(&world, HEALTHY).await;
    let mut failing = fleet(&world, FAILING.map(|(name, ..)| name)).await;
    world.start_hub(&[]);
    join_all(healthy.iter().chain(&failing).map(|member| member.is_well(&world))).await;
    let (watches, tasks) = (metric(&world, "holdfast_watches").await.unwrap(), world.http("/debug/tasks").await.lines().count());

    for (member, (_, how, _)) in failing.iter_mut().zip(FAILING) {
        member.fail(how);
        member.drift("red").await;
    }
    let everybody_is_corrected = async |color: &str| {
        join_all(healthy.iter().map(async |member| {
            member.drift(color).await;
            member.corrected(&world).await;
        }))
        .await;
    };
    everybody_is_corrected("red").await;
    join_all(failing.iter().zip(FAILING).map(|(member, (_, _, reasons))| member.is_down(&world, reasons))).await;
    everybody_is_corrected("green").await;
    join_all(healthy.iter().map(|member| member.is_well(&world))).await;

    // One question at a time, with growing pauses, and nothing else.
    for member in failing.iter().filter(|member| ["throttles", "errs"].contains(&member.name.as_str())) {
        let before = member.proxy.count(&Match::any());
        let asked = eventually("it is asked again", AFTER_A_BACKOFF, async || {
            let asked = member.proxy.count(&Match::any()) - before;
            ensure!(asked >= 1, "{asked} times");
            Ok(())
        });
        asked.await.unwrap_or_else(|error| panic!("{}: {error:#}\n{}", member.name, world.log()));
        let (questions, all) = (member.proxy.times(&Member::questions()), member.proxy.times(&Match::any()));
        assert!(all[before..].iter().all(|at| questions.contains(at)), "{}: only the question is asked", member.name);
        let pauses: Vec<Duration> = questions.windows(2).map(|pair| pair[1] - pair[0]).rev().take(6).collect();
        assert!(pauses.iter().max() > Some(&Duration::from_secs(1)), "{}: {pauses:?}", member.name);
    }
    let resets = &failing[1];
    assert!(resets.proxy.accepted() < 100, "{} connections were tried", resets.proxy.accepted());
    assert!(metric(&world, "holdfast_watches").await.unwrap() <= watches, "watches of dead clusters do not add up");
    assert!(world.http("/debug/tasks").await.lines().count() <= tasks, "{}", world.http("/debug/tasks").await);

    for member in &mut failing {
        member.fail(Failing::Not);
    }
    join_all(failing.iter().map(async |member| {
        member.corrected(&world).await;
        member.is_well(&world).await;
    }))
    .await;
    let settled = eventually("as at the beginning", AFTER_A_BACKOFF, async || {
        let now = metric(&world, "holdfast_watches").await?;
        ensure!(now == watches, "{now} watches instead of {watches}");
        for member in healthy.iter().chain(&failing) {
            ensure!(member.proxy.connections() <= 4, "{}: {} connections", member.name, member.proxy.connections());
        }
        Ok(())
    });
    settled.await.unwrap();
}

/// Longer than an outage of one cluster stays untold.
const LONGER_THAN_ONE_WOULD_TAKE: Duration = Duration::from_secs(14);

pub async fn an_outage_of_most_clusters_writes_no_reports_before_it_is_clear() {
    let (workload, mgmt) = planes().await;
    let mut world = World::empty(workload, mgmt, "storm").await;
    let mut members = fleet(&world, HEALTHY).await;
    world.start_hub(&[]);
    join_all(members.iter().map(|member| member.is_well(&world))).await;
    let all_down = async |world: &World, times: usize| {
        let noticed = eventually("every outage is noticed", AFTER_A_BACKOFF, async || {
            let noticed = world.log().matches("the cluster cannot be reached").count();
            ensure!(noticed >= times, "{noticed}");
            Ok(())
        });
        noticed.await.unwrap();
    };
    let report_writes = async |mark| {
        let audit = world.mgmt.audit_since(mark).await.unwrap();
        audit.in_namespace("storm").of_resource("driftreports").writes()
    };

    let mark = world.mgmt.audit_mark().await.unwrap();
    for member in &mut members {
        member.fail(Failing::Way(Link::Reset));
        member.drift("red").await;
    }
    all_down(&world, members.len()).await;
    // Nothing happens, which only time can show.
    tokio::time::sleep(LONGER_THAN_ONE_WOULD_TAKE).await;
    let storm = report_writes(mark).await;
    assert!(storm.is_empty(), "{storm}");
    let accepted: Vec<u64> = members.iter().map(|member| member.proxy.accepted()).collect();
    for member in &mut members {
        member.fail(Failing::Not);
    }
    join_all(members.iter().map(|member| member.corrected(&world))).await;
    join_all(members.iter().map(|member| member.is_well(&world))).await;
    assert!(members.iter().zip(accepted).all(|(member, before)| member.proxy.accepted() - before < 20), "no rush back");

    // One that lasts is told, cluster by cluster.
    let mark = world.mgmt.audit_mark().await.unwrap();
    for member in &mut members {
        member.fail(Failing::Way(Link::Refused));
    }
    join_all(members.iter().map(|member| member.is_down(&world, &["Unreachable"]))).await;
    let told: BTreeSet<i64> = report_writes(mark).await.iter().map(|call| call.time.as_second()).collect();
    assert!(told.len() > 2, "all at once: {told:?}");
    for member in &mut members {
        member.fail(Failing::Not);
    }
    join_all(members.iter().map(|member| member.is_well(&world))).await;
}
