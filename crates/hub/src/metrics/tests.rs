use super::*;

fn metrics() -> Metrics {
    Metrics::new(Arc::new(WatchStats::default())).unwrap()
}

/// The page with every kind of number on it. A change here is a change of the contract with dashboards and alerts.
#[test]
fn the_page_is_as_promised() {
    let metrics = metrics();
    let mut figures = ClusterFigures::new(ClusterState::Connected);
    figures.releases[0] = 2;
    figures.objects[2] = 1;
    figures.deviations[1] = 3;
    figures.contested_paths = 1;
    figures.queue_depth = 4;
    metrics.set_cluster(&ClusterName::new("fleet", "one"), figures);
    metrics.set_cluster(&ClusterName::new("fleet", "two"), ClusterFigures::new(ClusterState::Unreachable));
    metrics.drift_detected("Deployment", Change::Changed);
    metrics.corrected("Deployment", Outcome::Corrected);
    metrics.correction_took(Duration::from_millis(20));
    metrics.detection_took(Duration::from_millis(900));
    metrics.oracle_asked(OracleOutcome::Answered);
    metrics.kubeconfig_rejected(Rejection::Exec);
    metrics.event_dropped();
    metrics.set_state_bytes(2048);
    metrics.set_term(Some(Term::unlimited()));
    metrics.observe(Observed {
        verb: holdfast_fleet::transport::Verb::Get,
        dry_run: false,
        status: Some(::http::StatusCode::OK),
        elapsed: Duration::ZERO,
    });
    metrics.observe(Observed { verb: holdfast_fleet::transport::Verb::Patch, dry_run: true, status: None, elapsed: Duration::ZERO });

    let golden = include_str!("golden.txt");
    let page = metrics.page();
    assert_eq!(page, golden, "metrics/golden.txt is out of date; the page is:\n{page}");
}

#[test]
fn a_cluster_takes_its_numbers_with_it() {
    let metrics = metrics();
    let cluster = ClusterName::new("fleet", "one");
    let mut figures = ClusterFigures::new(ClusterState::Connected);
    figures.objects[0] = 7;
    metrics.set_cluster(&cluster, figures);
    assert!(metrics.page().contains("holdfast_objects{verdict=\"InSync\"} 7"));
    metrics.remove_cluster(&cluster);
    let page = metrics.page();
    assert!(page.contains("holdfast_objects{verdict=\"InSync\"} 0"));
    assert!(!page.contains("cluster=\"one\""), "{page}");
}

#[test]
fn nothing_of_a_cluster_that_cannot_be_seen_is_in_sync() {
    let metrics = metrics();
    let of = |in_sync, drifted| {
        Verdict::ALL.map(|verdict| match verdict {
            Verdict::InSync => in_sync,
            Verdict::Drifted => drifted,
            _ => 0,
        })
    };
    let count = |gauge: &str, verdict: Verdict| {
        let series = format!("holdfast_{gauge}{{verdict=\"{}\"}} ", verdict.as_str());
        metrics.page().lines().find_map(|line| line.strip_prefix(&series).map(str::to_owned)).unwrap()
    };
    for state in ClusterState::ALL {
        let figures = ClusterFigures { releases: of(3, 1), objects: of(40, 2), ..ClusterFigures::new(state) };
        metrics.set_cluster(&ClusterName::new("fleet", "one"), figures);
        let seen = matches!(state, ClusterState::Connected | ClusterState::Paused);
        for (gauge, as_seen, all) in [("releases", ["3", "1", "0"], "4"), ("objects", ["40", "2", "0"], "42")] {
            let shown = [Verdict::InSync, Verdict::Drifted, Verdict::Unknown].map(|verdict| count(gauge, verdict));
            assert_eq!(shown, if seen { as_seen } else { ["0", "0", all] }, "{gauge} {state:?}");
        }
    }
}

#[test]
fn invented_kinds_share_one_series() {
    let metrics = metrics();
    for number in 0..MAX_KINDS + 50 {
        metrics.drift_detected(&format!("Kind{number}"), Change::Added);
    }
    let page = metrics.page();
    assert!(page.contains("holdfast_drift_detected_total{change=\"Added\",kind=\"other\"} 50"));
    assert_eq!(page.lines().filter(|line| line.starts_with("holdfast_drift_detected_total{")).count(), MAX_KINDS + 1);
}
