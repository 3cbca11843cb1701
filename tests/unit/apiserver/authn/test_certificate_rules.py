"""Who may write ClusterTrustBundles."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from shoal.app.pki import Pki
from shoal.testing.servers import local_server

BUNDLES = "/apis/certificates.k8s.io/v1/clustertrustbundles"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def test_a_bundle_for_a_signer_needs_the_right_to_attest(tmp_path: Path) -> None:
    text = Pki(tmp_path, now=datetime.now(UTC)).ensure_ca().cert.read_text()
    jane = {"Impersonate-User": "jane"}
    spec = {"signerName": "shop.example/web", "trustBundle": text}
    bundle = {"metadata": {"name": "shop.example:web:roots"}, "spec": spec}

    def rule(verb: str, resource: str) -> dict[str, list[str]]:
        return {"apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": [verb]}

    async with local_server() as server:
        role = {"metadata": {"name": "bundles"}, "rules": [rule("*", "clustertrustbundles")]}
        await server.post(f"{RBAC}/clusterroles", role)
        subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane"}]
        reference = {"kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io", "name": "bundles"}
        await server.post(
            f"{RBAC}/clusterrolebindings",
            {"metadata": {"name": "bundles"}, "roleRef": reference, "subjects": subjects},
        )
        refused = await server.call("POST", BUNDLES, bundle, jane)
        assert refused.status == 403
        assert 'user not permitted to attest for signerName "shop.example/web"' in refused.json["message"]
        own = {"metadata": {"name": "roots"}, "spec": {"trustBundle": text}}
        assert (await server.call("POST", BUNDLES, own, jane)).status == 201
        signers = {**rule("attest", "signers"), "resourceNames": ["shop.example/*"]}
        await server.patch(f"{RBAC}/clusterroles/bundles", {"rules": [rule("*", "clustertrustbundles"), signers]})
        assert (await server.call("POST", BUNDLES, bundle, jane)).status == 201
