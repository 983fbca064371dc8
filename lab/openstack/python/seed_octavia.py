"""seed_octavia.py CONFIG PROJECT_IDS BALANCERS MEMBERS FIRST: puts active load balancers into octavia's database.

Each has a listener of port 80 and a pool of members, as octavia's worker would leave them.
"""
import datetime
import sys
import uuid

conf, projects, balancers, members, first = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
sys.argv = ["seed", "--config-file", conf]

from octavia.common import service  # noqa: E402

service.prepare_service(sys.argv)
from oslo_config import cfg  # noqa: E402

cfg.CONF.set_override("pool_timeout", None, group="database")
from octavia.db import api as database, models  # noqa: E402

# What changed just now is read twice: a cloud that was there before did so long ago.
now = (datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)).replace(tzinfo=None)


def new():
    return str(uuid.uuid4())


rows = {models.LoadBalancer: [], models.Vip: [], models.Pool: [], models.Listener: [], models.Member: []}
for i in range(first, first + balancers * len(projects)):
    project = projects[(i - first) // balancers]
    lb, pool, listener = new(), new(), new()
    base = dict(project_id=project, provisioning_status="ACTIVE", operating_status="ONLINE", enabled=True,
                created_at=now, updated_at=now, description="")
    rows[models.LoadBalancer].append(dict(base, id=lb, name="seed-%d" % i, topology="SINGLE", provider="amphora"))
    rows[models.Vip].append(dict(load_balancer_id=lb, ip_address="10.200.%d.%d" % (i // 250, i % 250), subnet_id=new(),
                                 network_id=new(), port_id=new(), octavia_owned=True))
    rows[models.Pool].append(dict(base, id=pool, name="pool-%d" % i, protocol="HTTP", lb_algorithm="ROUND_ROBIN",
                                  load_balancer_id=lb, tls_enabled=False))
    rows[models.Listener].append(dict(base, id=listener, name="listener-%d" % i, protocol="HTTP", protocol_port=80,
                                      connection_limit=-1, load_balancer_id=lb, default_pool_id=pool,
                                      client_authentication="NONE", peer_port=1025, timeout_client_data=50000,
                                      timeout_member_connect=5000, timeout_member_data=50000, timeout_tcp_inspect=0))
    for k in range(members):
        rows[models.Member].append(dict(base, id=new(), name="", pool_id=pool, protocol_port=8080, weight=1, backup=False,
                                        ip_address="10.%d.%d.%d" % ((i >> 8) & 255, i & 255, k + 1), subnet_id=None))
with database.get_engine().begin() as connection:
    for table, values in rows.items():
        columns = {c.name for c in table.__table__.columns}
        if values:
            connection.execute(table.__table__.insert(), [{k: v for k, v in r.items() if k in columns} for r in values])
for row in rows[models.LoadBalancer]:
    print(row["id"])
