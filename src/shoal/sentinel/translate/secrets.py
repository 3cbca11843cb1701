"""Certificates as secrets, which Envoy fetches and replaces while it runs, and the TLS settings that name them."""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2, tls_pb2
from envoy.type.matcher.v3 import string_pb2
from google.protobuf import wrappers_pb2

from shoal.sentinel.model import Settings, TlsSecret
from shoal.sentinel.translate import envoy

_TLS = "envoy.transport_sockets.tls"
_ALPN = ("h2", "http/1.1")


def certificate_name(secret: str) -> str:
    return f"certificate/{secret}"


def authority_name(secret: str) -> str:
    return f"authority/{secret}"


def secrets_of(secret: TlsSecret) -> dict[str, secret_pb2.Secret]:
    """By name: the certificate with its key and, where the Secret has one, the authority."""
    certificate = common_pb2.TlsCertificate(
        certificate_chain=base_pb2.DataSource(inline_bytes=secret.certificate),
        private_key=base_pb2.DataSource(inline_bytes=secret.key),
    )
    name = certificate_name(secret.name)
    made = {name: secret_pb2.Secret(name=name, tls_certificate=certificate)}
    if secret.authority:
        context = common_pb2.CertificateValidationContext(trusted_ca=base_pb2.DataSource(inline_bytes=secret.authority))
        name = authority_name(secret.name)
        made[name] = secret_pb2.Secret(name=name, validation_context=context)
    return made


def _fetched(name: str) -> secret_pb2.SdsSecretConfig:
    return secret_pb2.SdsSecretConfig(name=name, sds_config=envoy.ads())


def server_transport(secret: str) -> base_pb2.TransportSocket:
    """TLS for connections of clients."""
    common = tls_pb2.CommonTlsContext(
        tls_certificate_sds_secret_configs=[_fetched(certificate_name(secret))],
        alpn_protocols=_ALPN,
        tls_params=common_pb2.TlsParameters(tls_minimum_protocol_version=common_pb2.TlsParameters.TlsProtocol.TLSv1_2),
    )
    return _transport(tls_pb2.DownstreamTlsContext(common_tls_context=common))


def entry_transport(settings: Settings) -> base_pb2.TransportSocket:
    """TLS for incoming peers: only those with a gateway certificate signed by the authority."""
    return _transport(
        tls_pb2.DownstreamTlsContext(
            common_tls_context=_mutual(settings, _ALPN), require_client_certificate=wrappers_pb2.BoolValue(value=True)
        )
    )


def peer_transport(settings: Settings, protocol: str) -> base_pb2.TransportSocket:
    """TLS for outgoing requests to peers, with the protocol of the instances."""
    alpn = ("h2",) if protocol == "h2c" else ("http/1.1",)
    return _transport(tls_pb2.UpstreamTlsContext(common_tls_context=_mutual(settings, alpn), sni=settings.entry_name))


def web_transport(host: str) -> base_pb2.TransportSocket:
    """TLS to external servers, whose certificate must be signed by an authority of the system."""
    trusted = common_pb2.CertificateValidationContext(
        system_root_certs=common_pb2.CertificateValidationContext.SystemRootCerts(),
        match_typed_subject_alt_names=[_named(host)],
    )
    return _transport(
        tls_pb2.UpstreamTlsContext(common_tls_context=tls_pb2.CommonTlsContext(validation_context=trusted), sni=host)
    )


def _named(host: str) -> common_pb2.SubjectAltNameMatcher:
    return common_pb2.SubjectAltNameMatcher(
        san_type=common_pb2.SubjectAltNameMatcher.SanType.DNS, matcher=string_pb2.StringMatcher(exact=host)
    )


def _mutual(settings: Settings, alpn: tuple[str, ...]) -> tls_pb2.CommonTlsContext:
    return tls_pb2.CommonTlsContext(
        tls_certificate_sds_secret_configs=[_fetched(certificate_name(settings.entry_secret))],
        combined_validation_context=tls_pb2.CommonTlsContext.CombinedCertificateValidationContext(
            default_validation_context=common_pb2.CertificateValidationContext(
                match_typed_subject_alt_names=[_named(settings.entry_name)]
            ),
            validation_context_sds_secret_config=_fetched(authority_name(settings.entry_secret)),
        ),
        alpn_protocols=alpn,
        tls_params=common_pb2.TlsParameters(
            tls_minimum_protocol_version=common_pb2.TlsParameters.TlsProtocol.TLSv1_3,
            tls_maximum_protocol_version=common_pb2.TlsParameters.TlsProtocol.TLSv1_3,
        ),
    )


def _transport(context: tls_pb2.DownstreamTlsContext | tls_pb2.UpstreamTlsContext) -> base_pb2.TransportSocket:
    return base_pb2.TransportSocket(name=_TLS, typed_config=envoy.packed(context))
