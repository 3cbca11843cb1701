"""Pruning, type checks and canonical scalars of objects from clients."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import BadRequest
from shoal.kube.decode import normalize, prune
from shoal.kube.schema import ANY, Field, Form, Type, type_of_kind

POD = type_of_kind("", "v1", "Pod")
DEPLOYMENT = type_of_kind("apps", "v1", "Deployment")
SECRET = type_of_kind("", "v1", "Secret")
CONFIG_MAP = type_of_kind("", "v1", "ConfigMap")
LEASE = type_of_kind("coordination.k8s.io", "v1", "Lease")


def pod(**spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def container(**fields):
    return {"name": "c", **fields}


def test_a_canonical_object_is_left_exactly_as_it_was():
    obj = pod(containers=[container(image="i", ports=[{"containerPort": 80}])], nodeSelector={"a": "b"})
    before = copy.deepcopy(obj)
    assert normalize(obj, POD) == []
    assert obj == before


def test_unknown_fields_are_dropped_and_named_with_their_place():
    obj = pod(containers=[container(), container(foo=1, ports=[{"containerPort": 1, "bar": {}}])], baz=None)
    obj["extra"] = 1
    assert normalize(obj, POD) == [
        'unknown field "spec.containers[1].foo"',
        'unknown field "spec.containers[1].ports[0].bar"',
        'unknown field "spec.baz"',
        'unknown field "extra"',
    ]
    assert obj == pod(containers=[container(), container(ports=[{"containerPort": 1}])])


def test_unknown_fields_below_a_prefix_are_named_with_it():
    metadata = POD.fields["metadata"].type
    assert normalize({"name": "a", "nmae": "b"}, metadata, path="metadata") == ['unknown field "metadata.nmae"']


def test_unknown_fields_are_named_at_most_a_hundred_times():
    assert len(normalize(pod(**{f"x{n}": 1 for n in range(300)}), POD)) == 100


def test_field_names_are_case_sensitive():
    assert normalize(pod(NodeName="n"), POD) == ['unknown field "spec.NodeName"']


def test_nulls_are_dropped_wherever_a_field_is():
    obj = pod(containers=[container(image=None, resources=None)], nodeName=None, volumes=None)
    obj["metadata"]["creationTimestamp"] = None
    normalize(obj, POD)
    assert obj == pod(containers=[container()])


def test_null_items_become_the_zero_value_of_their_type():
    obj = pod(containers=[None, container(command=["a", None], resources={"limits": {"cpu": None}})])
    obj["metadata"]["labels"] = {"a": None}
    normalize(obj, POD)
    assert obj["metadata"]["labels"] == {"a": ""}
    assert obj["spec"]["containers"] == [{}, container(command=["a", ""], resources={"limits": {"cpu": "0"}})]


def test_zeros_that_go_leaves_out_are_dropped_and_others_stay():
    used = container(args=[], tty=False, env=[{"name": "A", "value": ""}], securityContext={"privileged": False})
    obj = pod(containers=[used], securityContext={}, volumes=[], hostNetwork=False, terminationGracePeriodSeconds=0)
    obj["metadata"]["labels"] = {}
    kept = copy.deepcopy(obj)
    assert normalize(kept, POD, keep_zeros=True) == [] and kept["spec"]["volumes"] == []
    normalize(obj, POD)
    wanted = container(env=[{"name": "A"}], securityContext={"privileged": False})
    assert obj["spec"] == {"containers": [wanted], "securityContext": {}, "terminationGracePeriodSeconds": 0}
    assert "labels" not in obj["metadata"]


def test_required_containers_stay_when_they_are_empty():
    obj = pod(containers=[])
    normalize(obj, POD)
    assert obj["spec"]["containers"] == []


@pytest.mark.parametrize(
    ("type_", "obj", "message"),
    [
        (
            DEPLOYMENT,
            {"spec": {"replicas": "3"}},
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            DEPLOYMENT,
            {"spec": {"template": {"spec": {"containers": [{"name": 1}]}}}},
            "json: cannot unmarshal number into Go struct field "
            "Container.spec.template.spec.containers.name of type string",
        ),
        (
            DEPLOYMENT,
            {"spec": "x"},
            "json: cannot unmarshal string into Go struct field Deployment.spec of type v1.DeploymentSpec",
        ),
        (
            DEPLOYMENT,
            {"metadata": {"labels": {"a": 1}}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            DEPLOYMENT,
            {"metadata": {"labels": []}},
            "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
        (
            POD,
            {"spec": {"containers": {}}},
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            POD,
            {"spec": {"hostNetwork": "true"}},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            POD,
            {"spec": {"priority": 3.0}},
            "json: cannot unmarshal number 3.0 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            POD,
            {"spec": {"priority": 2**31}},
            "json: cannot unmarshal number 2147483648 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            POD,
            {"spec": {"terminationGracePeriodSeconds": 2**63}},
            "json: cannot unmarshal number 9223372036854775808 into Go struct field "
            "PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        (
            POD,
            {"spec": {"priority": True}},
            "json: cannot unmarshal bool into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            POD,
            {"spec": {"containers": [{"resources": {"limits": {"cpu": "a lot"}}}]}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            POD,
            {"metadata": {"creationTimestamp": 5}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (SECRET, {"data": {"a": "%%%"}}, "illegal base64 data at input byte 0"),
        (SECRET, {"data": {"a": "YWI"}}, "illegal base64 data at input byte 3"),
        (
            POD,
            {"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": 1.5}}}]}},
            "json: cannot unmarshal number 1.5 into Go struct field "
            "HTTPGetAction.spec.containers.livenessProbe.httpGet.port of type int32",
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_name(type_, obj, message):
    with pytest.raises(BadRequest) as caught:
        normalize(obj, type_)
    assert caught.value.message == message


def test_an_object_that_is_no_object_is_refused():
    with pytest.raises(BadRequest, match="cannot unmarshal array into Go value of type v1.Pod"):
        normalize([], POD)


def test_a_mismatch_next_to_an_unknown_field_is_still_refused():
    with pytest.raises(BadRequest, match="PodSpec.spec.priority of type int32"):
        normalize(pod(unknown=1, priority="x"), POD)


def test_times_that_are_no_times_are_refused():
    with pytest.raises(BadRequest, match='parsing time "yesterday"'):
        normalize({"metadata": {"creationTimestamp": "yesterday"}}, POD)


def test_scalars_are_written_canonically():
    obj = pod(
        containers=[container(resources={"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": 1}})]
    )
    obj["metadata"]["creationTimestamp"] = "2024-05-01T12:00:00.5+02:00"
    normalize(obj, POD)
    assert obj["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "1"},
    }
    assert obj["metadata"]["creationTimestamp"] == "2024-05-01T10:00:00Z"
    lease = {"spec": {"renewTime": "2024-05-01T12:00:00Z"}}
    normalize(lease, LEASE)
    assert lease["spec"]["renewTime"] == "2024-05-01T12:00:00.000000Z"


def test_int_or_string_keeps_its_json_type():
    obj = {"spec": {"strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}}}
    before = copy.deepcopy(obj)
    normalize(obj, DEPLOYMENT)
    assert obj == before


def test_base64_over_several_lines_is_joined():
    obj = {"data": {"a": "YWJj\nZGVm\n"}}
    normalize(obj, SECRET)
    assert obj["data"]["a"] == "YWJjZGVm"


def test_integers_past_53_bits_survive():
    obj = pod(terminationGracePeriodSeconds=2**62 + 1)
    normalize(obj, POD)
    assert obj["spec"]["terminationGracePeriodSeconds"] == 2**62 + 1


def custom_type():
    """A custom resource: {spec: {size: int, free: any, open: {known: string, ...anything}, maybe: nullable string}}."""
    nullable = Type(Form.STRING)
    nullable.nullable = True
    opened = Type(Form.STRUCT)
    opened.preserve_unknown = True
    opened.fields = {"known": Field("known", Type(Form.STRING))}
    spec = Type(Form.STRUCT)
    spec.fields = {
        "size": Field("size", Type(Form.INTEGER)),
        "free": Field("free", ANY),
        "open": Field("open", opened),
        "maybe": Field("maybe", nullable),
    }
    root = Type(Form.STRUCT, "com.example.v1.Thing")
    root.fields = {"spec": Field("spec", spec)}
    return root


def test_open_structs_keep_what_they_do_not_know():
    obj = {"spec": {"open": {"other": {"x": None}}, "free": {"y": [None]}, "gone": 1}}
    assert normalize(obj, custom_type()) == ['unknown field "spec.gone"']
    assert obj == {"spec": {"open": {"other": {"x": None}}, "free": {"y": [None]}}}


def test_nullable_fields_keep_null():
    obj = {"spec": {"maybe": None, "size": None}}
    normalize(obj, custom_type())
    assert obj == {"spec": {"maybe": None}}


def test_prune_drops_unknown_fields_and_looks_at_no_value():
    obj = {"spec": {"size": "not a number", "gone": 1, "open": 5}}
    assert prune(obj, custom_type()) == ['unknown field "spec.gone"']
    assert obj == {"spec": {"size": "not a number", "open": 5}}


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "spec", "data", "metadata", "labels", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind", "x"]), json_values, max_size=4))
def test_any_json_is_either_refused_or_becomes_stable(obj):
    try:
        normalize(obj, POD)
    except BadRequest:
        return
    again = copy.deepcopy(obj)
    assert normalize(again, POD) == []
    assert again == obj
