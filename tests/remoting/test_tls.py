"""TLS files, and what failed handshakes are said to mean."""

from __future__ import annotations

import pickle
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from rocketstream import Producer, TlsFiles
from rocketstream.broker import EmbeddedBroker
from rocketstream.errors import ConfigurationError, ConnectError, ConnectionLostError, SendRequestError, TlsError
from rocketstream.remoting.io_thread import IoThread
from rocketstream.remoting.settings import RemotingSettings
from rocketstream.remoting.tls import context_of, end_of_connection, handshake_failure, is_of_handshake
from rocketstream.wire.codes import RequestCode
from tests.bare_client import BareClient
from tests.contract.secured import Pki


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


# --- files --------------------------------------------------------------------------------------------------------


def test_what_a_setting_stands_for(pki):
    assert context_of(False) is None
    system = context_of(True)
    assert system is not None
    assert (system.verify_mode, system.check_hostname) == (ssl.CERT_REQUIRED, True)
    own = ssl.create_default_context()
    assert context_of(own) is own
    context = context_of(TlsFiles(pki.ca_file, *pki.client))
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1, "the system's authorities are not trusted beside it"
    unchecked = TlsFiles(Path(pki.ca_file), check_host_name=False).context()
    assert (unchecked.verify_mode, unchecked.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_files_are_a_value(pki):
    files = TlsFiles(pki.ca_file, *pki.client, key_password="a pass phrase")
    assert pickle.loads(pickle.dumps(files)) == files
    assert hash(files) == hash(TlsFiles(pki.ca_file, *pki.client, key_password="a pass phrase"))
    assert "a pass phrase" not in repr(files)
    assert pki.ca_file in repr(files)


def test_a_key_that_is_encrypted(pki, tmp_path):
    certificate, key = pki.client
    private = serialization.load_pem_private_key(Path(key).read_bytes(), None)
    locked = tmp_path / "locked.key"
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked.write_bytes(private.private_bytes(*form, serialization.BestAvailableEncryption(b"open sesame")))
    TlsFiles(pki.ca_file, certificate, locked, "open sesame").context()
    with pytest.raises(ConfigurationError, match="the password of the key is wrong") as caught:
        TlsFiles(pki.ca_file, certificate, locked, "close sesame").context()
    assert "sesame" not in str(caught.value)
    # Without a password OpenSSL would ask on the terminal.
    with pytest.raises(ConfigurationError, match="the private key is encrypted: give key_password"):
        TlsFiles(pki.ca_file, certificate, locked).context()
    with pytest.raises(ConfigurationError, match="encrypted, which cannot be used here: store it without a password"):
        TlsFiles(pki.ca_file, certificate, locked).context({"ca_file": "a", "cert_file": "b", "key_file": "c"})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda pki: TlsFiles("/no/such/file"), r"ca_file='/no/such/file' cannot be read: No such file"),
        (lambda pki: TlsFiles("/"), r"ca_file='/' cannot be read: Is a directory"),
        (lambda pki: TlsFiles(""), r"ca_file='' must be the path of a file"),
        (lambda pki: TlsFiles(7), r"ca_file=7 must be the path of a file"),
        (lambda pki: TlsFiles("a\0b"), r"ca_file='a\\x00b' cannot be read: embedded null"),
        (lambda pki: TlsFiles(pki.client[1]), r"ca_file='.*client.key' holds no certificate in PEM"),
        (lambda pki: TlsFiles(key_file=pki.client[1]), r"key_file is given without cert_file"),
        (
            lambda pki: TlsFiles(cert_file=pki.client[0]),
            r"cert_file=.* holds no certificate with its private key.*key_file",
        ),
        (lambda pki: TlsFiles(None, pki.client[0], pki.server[1]), r"the key is not the one of the certificate"),
        (lambda pki: TlsFiles(None, pki.client[0], pki.client[0]), r"are no certificate with its private key, in PEM"),
        (lambda pki: TlsFiles(check_host_name="no"), r"check_host_name='no' must be True or False"),
    ],
)
def test_files_that_cannot_work_are_refused_before_anything_is_opened(pki, wrong, words):
    with pytest.raises(ConfigurationError, match=words) as caught:
        Producer("p", "127.0.0.1:1", tls=wrong(pki))
    assert "\n" not in str(caught.value)


def test_what_tls_cannot_be():
    with pytest.raises(ConfigurationError, match=r"tls='yes' must be True, False, TlsFiles\(ca_file, ...\) or"):
        Producer("p", "127.0.0.1:1", tls="yes")


# --- words --------------------------------------------------------------------------------------------------------


def verification(message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = message
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            verification("unable to get local issuer certificate"),
            "give the authority that has signed it: tls=TlsFiles(",
        ),
        (verification("self-signed certificate"), "give the authority that has signed it: tls=TlsFiles("),
        (verification("certificate has expired"), "certificate has expired; renew it, or set the clocks right"),
        (verification("IP address mismatch, certificate is not valid for 'h'."), "it is not for 'h' (IP address"),
        (
            verification("Hostname mismatch"),
            "trust every certificate of the authority: tls=TlsFiles(ca_file, check_host",
        ),
        (ConnectionResetError(), "it seems not to speak TLS at this port (then tls=False)"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "it seems not to speak TLS at this port"),
        (
            ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca"),
            "a client certificate, or does not take ours",
        ),
        (ssl.SSLError(1, "[SSL: SSLV3_ALERT_HANDSHAKE_FAILURE] x"), "the server wants a client certificate: tls=TlsF"),
        (ssl.SSLError(1, "[SSL: NO_SHARED_CIPHER] no shared cipher"), "no shared cipher"),
    ],
)
def test_a_handshake_that_failed(error, words):
    assert is_of_handshake(error)
    said = handshake_failure(error, "h")
    assert said.startswith("TLS handshake failed")
    assert words in said


def test_what_is_no_matter_of_tls():
    for error in (ConnectionRefusedError(), TimeoutError(), OSError(113, "No route to host"), ValueError()):
        assert not is_of_handshake(error)


@pytest.mark.parametrize(
    ("error", "tls", "heard", "said"),
    [
        (None, False, True, "the peer closed it"),
        (None, False, False, "the peer closed it before it said anything; does it expect TLS (tls=True)?"),
        (ConnectionResetError("reset"), False, False, "reset"),
        (None, True, True, "the peer closed it"),
        (None, True, False, "the peer closed it, right after the TLS handshake; does it want a client certificate?"),
        (ConnectionResetError("reset"), True, True, "reset"),
    ],
)
def test_a_connection_that_ended(error, tls, heard, said):
    assert end_of_connection(error, tls=tls, heard=heard) == said


def test_an_alert_after_the_handshake_says_what_is_missing():
    error = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required")
    assert "the server wants a client certificate" in end_of_connection(error, tls=True, heard=False)


# --- together -----------------------------------------------------------------------------------------------------


def ask(address: str, **settings: object) -> None:
    client = BareClient("127.0.0.1:1", IoThread.shared(), remoting=RemotingSettings(**settings))
    try:
        client.ask(address, RequestCode.GET_BROKER_CONFIG)
    finally:
        client.close()


def test_connections_say_what_was_wrong(pki):
    with EmbeddedBroker(tls=pki.server_context()) as broker:
        address = broker.broker_address
        ask(address, tls=pki.files())
        with pytest.raises(
            TlsError, match=rf"{address}: TLS handshake failed, the server's certificate is not trusted"
        ):
            ask(address, tls=TlsFiles(pki.other_ca_file))
        with pytest.raises(SendRequestError, match="does it expect TLS"):
            ask(address)
    with pytest.raises(ConnectError, match="cannot connect") as caught:
        ask(address, tls=pki.files())  # nobody is there any more: no word of TLS
    assert not isinstance(caught.value, TlsError)


def test_a_server_that_says_nothing_to_a_handshake_is_given_up(pki):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(
            ConnectError, match=r"no connection within 0.2 s with its TLS handshake; does the peer speak"
        ):
            ask(address, tls=pki.files(), connect_timeout=0.2)


def test_a_server_that_answers_with_an_alert_is_said_to_speak_tls():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def alert() -> None:
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(100)
                accepted.sendall(b"\x15\x03\x03\x00\x02\x02\x46")
                accepted.recv(100)

        answering = threading.Thread(target=alert)
        answering.start()
        with pytest.raises(ConnectionLostError, match="the peer speaks TLS: pass tls=True"):
            ask(f"127.0.0.1:{server.getsockname()[1]}")
        answering.join()


def test_renewed_certificates_are_used_for_new_connections(tmp_path):
    """A client that runs for months outlives its certificates."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = Pki(tmp_path / "old"), Pki(tmp_path / "new")
    files = TlsFiles(old.ca_file, *old.client)
    with EmbeddedBroker(tls=old.server_context(wants_clients=True)) as broker:
        ask(broker.broker_address, tls=files)
    for kept, renewed in ((old.ca_file, new.ca_file), *zip(old.client, new.client, strict=True)):
        Path(kept).write_bytes(Path(renewed).read_bytes())
    with EmbeddedBroker(tls=new.server_context(wants_clients=True)) as broker:
        ask(broker.broker_address, tls=files)
