"""What a consumer asks brokers about subscriptions: would you take this filter, and what do the others want?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocketstream.cluster.brokers import MASTER_ID
from rocketstream.cluster.client_instance import ClientInstance
from rocketstream.wire.bodies.members import ConsumerConnection
from rocketstream.wire.bodies.subscription import CheckClientRequestBody, SubscriptionData
from rocketstream.wire.codes import ExpressionType, RequestCode
from rocketstream.wire.headers.group import GetConsumerConnectionListRequestHeader


async def check_filters(
    instance: ClientInstance,
    client_id: str,
    group: str,
    namespace: str | None,
    subscriptions: Iterable[SubscriptionData],
) -> None:
    """Have every expression that is not a tag's checked by a broker of its topic, which says what is wrong (START-09).

    A broker without SQL92 (`enablePropertyFilter=false`) refuses here, before the consumer waits for messages in vain.
    """
    for sub in subscriptions:
        if sub.expression_type == ExpressionType.TAG:
            continue
        route = await instance.routes.get(sub.topic)
        body = CheckClientRequestBody(client_id=client_id, group=group, subscription_data=sub, namespace=namespace)
        for by_id in route.brokers.values():
            if MASTER_ID in by_id:
                await instance.ask(by_id[MASTER_ID], RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())


async def group_subscriptions(instance: ClientInstance, group: str) -> Mapping[str, SubscriptionData]:
    """What the members of a group subscribe to, as one broker was last told."""
    header = GetConsumerConnectionListRequestHeader(consumer_group=group)
    for broker in instance.brokers:
        if not broker.is_slave:
            answer = await instance.ask(broker.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            return ConsumerConnection.decode(answer.body).subscription_table
    return {}
