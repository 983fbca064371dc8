"""serve_octavia.py PORT CONFIG: octavia's API and its worker in one process, on loopback.

Both talk through oslo.messaging's fake:// transport. The database is made as octavia's own functional tests make it:
its migrations do not run on SQLite.
"""
import sqlite3
import sys

import parent

parent.watch()
port, conf = int(sys.argv[1]), sys.argv[2]
sys.argv = ["octavia", "--config-file", conf]

from oslo_db.sqlalchemy import engines  # noqa: E402


@engines._init_events.dispatch_for("sqlite")
def _init_events(engine, **kw):
    """Lets transactions begin with their first write, as Python's sqlite3 does by itself.

    oslo.db begins them with their first read. A write after that read is refused at once ("database is locked") if
    somebody else has written in between, which API and worker do all the time.
    """


from octavia.wsgi.api import application  # noqa: E402 # reads the configuration
from oslo_config import cfg  # noqa: E402

cfg.CONF.set_override("pool_timeout", None, group="database")  # SQLAlchemy 2 refuses it for SQLite

from octavia.db import api as database, base_models  # noqa: E402
from octavia.tests.functional.db.base import OctaviaDBTestBase  # noqa: E402


class Seeder:
    _seed_lookup_table = OctaviaDBTestBase._seed_lookup_table
    _seed_lookup_tables = OctaviaDBTestBase._seed_lookup_tables


path = cfg.CONF.database.connection.removeprefix("sqlite:///").split("?")[0]
sqlite3.connect(path).execute("PRAGMA journal_mode=WAL")  # readers do not hold up the worker
base_models.BASE.metadata.create_all(database.get_engine())
session = database.get_session()
with session.begin():
    Seeder()._seed_lookup_tables(session)

import oslo_messaging  # noqa: E402
from oslo_messaging.rpc import dispatcher  # noqa: E402
from octavia.common import constants, rpc  # noqa: E402
from octavia.controller.queue.v2 import endpoints  # noqa: E402

target = oslo_messaging.Target(topic=constants.TOPIC_AMPHORA_V2, server=cfg.CONF.host, fanout=False)
oslo_messaging.get_rpc_server(
    rpc.TRANSPORT, target, [endpoints.Endpoints()], executor="threading", access_policy=dispatcher.DefaultRPCAccessPolicy
).start()

import waitress  # noqa: E402

waitress.serve(application, host="127.0.0.1", port=port, threads=8, ident="octavia")
