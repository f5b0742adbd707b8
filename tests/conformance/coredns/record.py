#!/usr/bin/env python3
"""Records the answers of CoreDNS for the scenarios of this directory; README.md tells the format.

  record.py COREDNS KUBECONFIG [SCENARIO...]

Creates the objects of each scenario at the API server of KUBECONFIG (one without controllers, to be thrown away
afterwards: namespaces are left behind), starts COREDNS with the scenario's Corefile, asks, and rewrites the file.
"""
import json
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "PTR": 12, "TXT": 16, "AAAA": 28, "SRV": 33, "ANY": 255}
RCODES = ["NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"]
FLAGS = [(0x8000, "qr"), (0x0400, "aa"), (0x0200, "tc"), (0x0100, "rd"), (0x0080, "ra")]


def kubectl(kubeconfig, *args, given=None):
    command = ["kubectl", "--kubeconfig", kubeconfig, *args]
    return subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, text=True).stdout


def create(kubeconfig, objects):
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    kubectl(kubeconfig, "apply", "--validate=false", "--server-side", "--force-conflicts", "-f", "-", given=json.dumps(listed))
    for pod in [o for o in objects if o["kind"] == "Pod"]:
        patch = json.dumps({"status": pod["status"]})
        place = ["-n", pod["metadata"]["namespace"], pod["metadata"]["name"]]
        kubectl(kubeconfig, "patch", "pod", *place, "--subresource=status", "--type=merge", "-p", patch)


def delete(kubeconfig, objects):
    kept = [o for o in objects if o["kind"] != "Namespace"]
    listed = {"apiVersion": "v1", "kind": "List", "items": kept}
    kubectl(kubeconfig, "delete", "--now", "--ignore-not-found", "-f", "-", given=json.dumps(listed))


def name_at(message, at):
    labels, end = [], None
    while message[at]:
        if message[at] >= 0xC0:
            end = end or at + 2
            at = struct.unpack_from(">H", message, at)[0] & 0x3FFF
            continue
        labels.append(message[at + 1 : at + 1 + message[at]].decode())
        at += 1 + message[at]
    return ".".join(labels) + ".", end or at + 1


def record_at(message, at):
    owner, at = name_at(message, at)
    kind, _, ttl, length = struct.unpack_from(">HHIH", message, at)
    at += 10
    data, end = message[at : at + length], at + length
    text = {v: k for k, v in TYPES.items()}.get(kind, f"TYPE{kind}")
    if kind == 1:
        rdata = socket.inet_ntop(socket.AF_INET, data)
    elif kind == 28:
        rdata = socket.inet_ntop(socket.AF_INET6, data)
    elif kind in (2, 5, 12):
        rdata = name_at(message, at)[0]
    elif kind == 33:
        rdata = "%d %d %d " % struct.unpack_from(">HHH", data) + name_at(message, at + 6)[0]
    elif kind == 6:
        server, at = name_at(message, at)
        mailbox, at = name_at(message, at)
        rdata = f"{server} {mailbox} <serial> %d %d %d %d" % struct.unpack_from(">IIII", message, at + 4)
    else:
        rdata = data.hex()
    return f"{owner} {ttl} IN {text} {rdata}", end


def read(message):
    _, bits, questions, *counts = struct.unpack_from(">HHHHHH", message)
    at = 12
    for _ in range(questions):
        at = name_at(message, at)[1] + 4
    answer = {"rcode": RCODES[bits & 15], "flags": " ".join(text for bit, text in FLAGS if bits & bit)}
    for section, count in zip(["answer", "authority", "additional"], counts):
        records = []
        for _ in range(count):
            record, at = record_at(message, at)
            records.append(record)
        if records:
            answer[section] = sorted(records)
    return answer


def ask(port, question):
    name, kind = question.split(" ")
    packet = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0)
    packet += b"".join(bytes([len(label)]) + label.encode() for label in name.rstrip(".").split("."))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        for _ in range(4):
            client.sendto(packet + b"\0" + struct.pack(">HH", TYPES[kind], 1), ("127.0.0.1", port))
            try:
                return read(client.recv(65535))
            except TimeoutError:
                continue
        raise SystemExit(f"CoreDNS does not answer {question}")


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def corefile(scenario, kubeconfig, port, ready):
    zones = scenario.get("zones", "cluster.local in-addr.arpa ip6.arpa")
    lines = [f"kubeconfig {kubeconfig}", "ttl 30", *scenario["corefile"]]
    plugin = "\n".join("  " + line for line in lines)
    others = "\n".join(" " + line for line in scenario.get("plugins", []))
    return f".:{port} {{\n bind 127.0.0.1\n ready 127.0.0.1:{ready}\n{others}\n kubernetes {zones} {{\n{plugin}\n }}\n}}\n"


def is_ready(ready):
    try:
        with socket.create_connection(("127.0.0.1", ready), 1) as connection:
            connection.sendall(b"GET /ready HTTP/1.0\r\n\r\n")
            return b" 200 " in connection.recv(100)
    except OSError:
        return False


def recorded(port, case):
    ours = {"ours": case["ours"]} if "ours" in case else {}
    return {"asks": case["asks"], "response": ask(port, case["asks"]), **ours}


def answers(scenario, coredns, kubeconfig):
    port, ready = free_port(), free_port()
    with tempfile.NamedTemporaryFile("w", suffix=".Corefile") as file:
        file.write(corefile(scenario, kubeconfig, port, ready))
        file.flush()
        process = subprocess.Popen([coredns, "-conf", file.name], stdout=subprocess.DEVNULL)
        try:
            while not is_ready(ready):
                if process.poll() is not None:
                    raise SystemExit("CoreDNS has ended")
                time.sleep(0.2)
            return [recorded(port, case) for case in scenario["answers"]]
        finally:
            process.terminate()
            process.wait()


def write(path, scenario):
    head = {key: value for key, value in scenario.items() if key != "answers"}
    text = json.dumps(head, indent=1)[: -len("\n}")]
    cases = ",\n".join("  " + json.dumps(case) for case in scenario["answers"])
    path.write_text(f'{text},\n "answers": [\n{cases}\n ]\n}}\n')


def main():
    coredns, kubeconfig, *names = sys.argv[1:]
    for path in sorted((HERE / "scenarios").glob("*.json")):
        if path.stem.startswith("cases-") or names and path.stem not in names:
            continue
        scenario = json.loads(path.read_text())
        objects = json.loads((HERE / "objects" / (scenario["objects"] + ".json")).read_text())
        create(kubeconfig, objects)
        scenario["answers"] = answers(scenario, coredns, kubeconfig)
        write(path, scenario)
        delete(kubeconfig, objects)
        print(path.stem, len(scenario["answers"]))


if __name__ == "__main__":
    main()
