"""Ways to write addresses of this machine and its neighbours; {port} is where the canary is."""

_HOSTS = (
    *("127.0.0.1", "127.1", "127.0.1", "127.000.000.001", "127.127.127.127", "0", "0.0.0.0", "0.0"),
    *("2130706433", "017700000001", "0x7f000001", "0x7f.1", "0x7F.0x0.0x0.0x1", "0177.0.0.1"),
    *("0177.0.0.01", "00000177.0.0.1", "0x7f.0.0.0x1", "127.0x0.1", "4294967295", "2130706433."),
    *("127.0.0.1.", "127.0.0.1..", "127。0。0。1", "127.0.0.1", "127。0.0.1"),
    *("①②⑦.⓪.⓪.①", "①27.0.0.1", "127.0.0.①", "127.0.0.1", "٧٧.0.0.1", "१२७.०.०.१"),
    *(
        "[::1]",
        "[::]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
    ),
    *("[64:ff9b::7f00:1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]"),
    *("[fe80::1%25lo]", "[fe80::1]", "[fec0::1]", "[fd00::1]", "[ff02::1]", "[::1%lo]", "[::1"),
    *(
        "localhost",
        "LOCALHOST",
        "LocalHost",
        "localhost.",
        "localhost.localdomain",
        "ip6-localhost",
    ),
    *("ip6-loopback", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "locaLhost", "lo\u00adcalhost", "local\u200bhost", "ſocalhost"),
    *("%6c%6f%63alhost", "%31%32%37.0.0.1", "127.0.0.1%2f", "127%2e0%2e0%2e1", "loc\talhost"),
    *("169.254.169.254", "2852039166", "0xa9fea9fe", "[fd00:ec2::254]", "100.100.100.200"),
    *("10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1", "198.18.0.1", "224.0.0.1"),
    *("127.0.0.1.nip.example", "a.nip.example", "user@localhost", "a.nip.example@localhost"),
    *("a.nip.example:80@127.0.0.1", "a.nip.example%40localhost", "a.nip.example\\@localhost"),
    *("localhost#@a.nip.example", "localhost?@a.nip.example", "localhost\\.a.nip.example"),
    *("a.nip.example\r\nHost: localhost", "a.nip.example %20localhost", "a.nip.example\x00.org"),
    *("localhost\n.a.nip.example", "[v1.localhost]", "[127.0.0.1]", "127.0.0.1:80@a.nip.example"),
)
SPELLINGS = (
    *(f"http://{host}:{{port}}/" for host in _HOSTS),
    *(
        f"{scheme}localhost:{{port}}/"
        for scheme in ("//", "http:", "http:/", "http:///", "HTTP://")
    ),
    *(f"{scheme}://127.0.0.1:{{port}}/" for scheme in ("https", "ftp", "gopher", "ws", "dict")),
    *(
        "http:\\\\localhost:{port}\\",
        "http:/\\localhost:{port}",
        "http://localhost:{port}\\@a.nip.example",
    ),
    *(" http://localhost:{port}/", "\thttp://localhost:{port}/", "http://\\localhost:{port}/"),
    *("http://localhost:0{port}/", "http://localhost:{port}:80/", "http://localhost: {port}/"),
    *("file:///etc/passwd", "data:text/plain,x", "javascript:alert(1)", "jar:http://localhost!/"),
    "url:http://localhost:{port}/",
)
