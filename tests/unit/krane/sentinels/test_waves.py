"""A changed image reaches one gateway of a cluster after the other."""

from __future__ import annotations

from shoal.krane.sentinels.waves import ImageWaves, image_in


def gateway(name, image="shoal:1", *, ready=True, replicas=1):
    labels = {"app.kubernetes.io/component": "sentinel", "shoal.dev/sentinel": name}
    count = replicas if ready else 0
    return {
        "metadata": {"name": f"sentinel-{name}", "labels": labels, "generation": 1},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"image": image}]}}},
        "status": {
            "observedGeneration": 1, "updatedReplicas": replicas, "replicas": replicas, "availableReplicas": count,
            "unavailableReplicas": replicas - count,
        },
    }  # fmt: skip


def test_nobody_is_waited_for_while_all_run_what_they_should():
    assert ImageWaves().blocker("sentinel/a", [gateway("a"), gateway("b")]) == ""


def test_a_gateway_that_is_being_rolled_out_is_waited_for_but_not_by_itself():
    rolling = [gateway("a", ready=False), gateway("b")]
    assert ImageWaves().blocker("sentinel/b", rolling) == "sentinel-a"
    assert ImageWaves().blocker("sentinel/a", rolling) == ""


def test_a_paused_gateway_is_not_waited_for():
    assert ImageWaves().blocker("sentinel/b", [gateway("a", replicas=0), gateway("b")]) == ""


def test_what_was_given_an_image_is_waited_for_before_the_cluster_shows_it():
    waves = ImageWaves()
    waves.begins("sentinel/a", "shoal:2")
    assert waves.blocker("sentinel/b", [gateway("a"), gateway("b")]) == "sentinel-a", "what is seen is of before"
    assert waves.blocker("sentinel/a", [gateway("a"), gateway("b")]) == "", "it may be applied again"
    assert waves.blocker("sentinel/b", [gateway("a", "shoal:2"), gateway("b")]) == ""
    assert waves.blocker("sentinel/b", [gateway("b")]) == "", "it was deleted"


def test_the_image_is_that_of_the_only_container():
    assert image_in(gateway("a", "shoal:7")) == "shoal:7"
    assert image_in(None) == image_in({"spec": {}}) == ""
