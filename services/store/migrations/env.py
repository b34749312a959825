"""What alembic runs. The connection comes from services.store.migrate, which holds the lock and the transaction."""

from alembic import context

from services.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, compare_type=True, compare_server_default=True)
context.run_migrations()
