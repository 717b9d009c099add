"""WebShop: buy the product that an instruction asks for."""
