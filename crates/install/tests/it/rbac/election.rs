//! Leader election, with the permissions of each role.

use futures_util::FutureExt as _;
use plumb_controller_runtime::leader::{LeaderConfig, LeaderElector};
use plumb_install::{Component, Options};
use plumb_recommender::shards::{Elections, ShardConfig};
use plumb_testkit::in_time;
use tokio::sync::oneshot;

use super::log::{client, role};
use super::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn the_updater_and_the_rollout_are_elected_with_every_right_that_they_have_for_it() {
    let world = World::new().await;
    // The defaults of --leader-elect-resource-name.
    for (component, lease) in
        [(Component::Updater, "vpa-updater"), (Component::Rollout, "plumb-rollout-lease")]
    {
        let (client, log) = client(&world.cluster, component);
        let config = LeaderConfig::new(Options::default().namespace, lease, "one");
        let elector = LeaderElector::new(client, config).unwrap();
        // Its work ends at once, and it releases the lease.
        let worked = in_time(elector.run(std::future::pending(), || async {})).await;
        assert_eq!(worked, Some(()), "{component}");
        log.check_election(component).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recommenders_share_the_work_with_every_right_that_they_have_for_it() {
    let world = World::new().await;
    let (client, log) = client(&world.cluster, Component::Recommender);
    let config = ShardConfig::sharded(2, &Options::default().namespace, "one");
    let elections = Elections::new(&client, &config).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(elections.run(stopped.map(drop).boxed()));
    log.wait_for("list leases.coordination.k8s.io").await;
    log.wait_for("update leases.coordination.k8s.io").await;
    drop(stop);
    in_time(running).await.unwrap();
    log.check_election(Component::Recommender).await;
}

#[test]
fn the_webhook_takes_part_in_no_election() {
    assert!(role(Component::Admission).election.is_empty());
}
